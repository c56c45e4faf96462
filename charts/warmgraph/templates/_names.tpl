{{/* Names and labels. */}}

{{- define "warmgraph.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Cluster-wide objects carry the namespace too: two releases must not share them. */}}
{{- define "warmgraph.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "warmgraph.fullname" .) -}}
{{- end -}}

{{- define "warmgraph.operator" -}}{{ include "warmgraph.fullname" . }}-operator{{- end -}}
{{- define "warmgraph.activator" -}}{{ include "warmgraph.fullname" . }}-activator{{- end -}}

{{- define "warmgraph.operator.serviceAccount" -}}
{{- .Values.operator.serviceAccount.name | default (include "warmgraph.operator" .) -}}
{{- end -}}

{{- define "warmgraph.activator.serviceAccount" -}}
{{- .Values.activator.serviceAccount.name | default (include "warmgraph.activator" .) -}}
{{- end -}}

{{- define "warmgraph.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: warmgraph
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: warmgraph
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Selectors can never change: nothing of the chart's version is in them. Argument: (dict "root" $
"component" "operator"). */}}
{{- define "warmgraph.selector" -}}
app.kubernetes.io/name: warmgraph
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}
