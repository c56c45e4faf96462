{{/* Parts of the NetworkPolicies. */}}

{{/* The API server has no pods to select: it is known by its ports. */}}
{{- define "warmgraph.egressToCluster" -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
- ports:
    {{- range .Values.networkPolicy.apiServerPorts }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
{{- end -}}

{{- define "warmgraph.controlPlanePeer" -}}
- namespaceSelector:
    matchLabels:
      kubernetes.io/metadata.name: {{ .Release.Namespace }}
  podSelector:
    matchLabels:
      app.kubernetes.io/name: warmgraph
      app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
