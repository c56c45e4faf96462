{{/* What the pods of operator and activator have in common. Argument: (dict "root" $ "component"
"operator" "values" .Values.operator). */}}

{{- define "warmgraph.pod.metadata" -}}
labels:
  {{- include "warmgraph.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
  {{- with .values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "warmgraph.pod.placement" -}}
{{- with .root.Values.images.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The restricted profile. Argument: the root. */}}
{{- define "warmgraph.podSecurity" -}}
runAsNonRoot: true
{{- if not (kindIs "invalid" .Values.podSecurity.runAsUser) }}
runAsUser: {{ .Values.podSecurity.runAsUser | int64 }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "warmgraph.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}
