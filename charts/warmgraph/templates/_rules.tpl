{{/* What each process may do: the tables in operator/README.md and activator/README.md, no more. */}}

{{- define "warmgraph.operator.rules" -}}
- apiGroups: [warmgraph.dev]
  resources: [inferencedeployments]
  verbs: [get, list, watch]
- apiGroups: [warmgraph.dev]
  resources: [inferencedeployments/status, inferencedeployments/scale]
  verbs: [patch]
# Asked for where an owner reference blocks its owner's deletion. No finalizer is ever set.
- apiGroups: [warmgraph.dev]
  resources: [inferencedeployments/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch]
# History of pod templates.
- apiGroups: [apps]
  resources: [controllerrevisions]
  verbs: [get, list, create, patch, delete]
- apiGroups: [""]
  resources: [services, serviceaccounts]
  verbs: [get, list, watch, create, patch]
# Deleted only while it is unbound and its class was changed.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
# A changed ConfigMap that a pod template refers to is a new revision.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get]
# Why a claim or a volume waits.
- apiGroups: [""]
  resources: [events]
  verbs: [list]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch]
# The activators' slice, while they stand in.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch, create, patch, delete]
# To notice a second autoscaler.
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [list]
- apiGroups: [keda.sh]
  resources: [scaledobjects]
  verbs: [list]
{{- end -}}

{{- define "warmgraph.activator.rules" -}}
- apiGroups: [warmgraph.dev]
  resources: [inferencedeployments]
  verbs: [list, watch]
# Wakes: 0 to 1 replicas.
- apiGroups: [warmgraph.dev]
  resources: [inferencedeployments/scale]
  verbs: [get, patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
{{- end -}}

{{/* The rules of a component, cluster-wide or in each watched namespace. Argument: (dict "root" $
"component" "operator"). */}}
{{- define "warmgraph.grant" -}}
{{- $rules := include (printf "warmgraph.%s.rules" .component) .root -}}
{{- $account := include (printf "warmgraph.%s.serviceAccount" .component) .root -}}
{{- $root := .root -}}
{{- $component := .component -}}
{{- $namespaced := not (empty .root.Values.watchNamespaces) -}}
{{- range $namespace := .root.Values.watchNamespaces | default (list "") }}
{{- $name := ternary (include "warmgraph.fullname" $root) (include "warmgraph.clusterName" $root) $namespaced }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ ternary "Role" "ClusterRole" $namespaced }}
metadata:
  name: {{ $name }}-{{ $component }}
  {{- if $namespaced }}
  namespace: {{ $namespace }}
  {{- end }}
  labels:
    {{- include "warmgraph.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $component }}
rules:
  {{- $rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ ternary "RoleBinding" "ClusterRoleBinding" $namespaced }}
metadata:
  name: {{ $name }}-{{ $component }}
  {{- if $namespaced }}
  namespace: {{ $namespace }}
  {{- end }}
  labels:
    {{- include "warmgraph.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $component }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ ternary "Role" "ClusterRole" $namespaced }}
  name: {{ $name }}-{{ $component }}
subjects:
  - kind: ServiceAccount
    name: {{ $account }}
    namespace: {{ $root.Release.Namespace }}
{{- end }}
{{- end -}}
