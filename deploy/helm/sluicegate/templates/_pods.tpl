{{/* What the release says of the pods of one Deployment, StatefulSet or Job. */}}
{{- define "sluicegate.pods" -}}
{{- $template := .object.spec.template -}}
{{- include "kustomize.merge" (dict "into" $template.metadata "from" (dict "labels" (deepCopy .labels))) -}}
{{- range .object.spec.volumeClaimTemplates -}}
  {{- include "kustomize.merge" (dict "into" .metadata "from" (dict "labels" (deepCopy $.labels))) -}}
{{- end -}}
{{- $pod := $template.spec -}}
{{- range $pod.volumes -}}
  {{- if and .configMap (hasKey $.names (.configMap | default dict).name) -}}
    {{- $_ := set .configMap "name" (get $.names .configMap.name) -}}
  {{- end -}}
{{- end -}}
{{- with .root.Values.image.pullSecrets -}}
  {{- $secrets := list -}}
  {{- range . -}}
    {{- $secrets = append $secrets (dict "name" .) -}}
  {{- end -}}
  {{- $_ := set $pod "imagePullSecrets" $secrets -}}
{{- end -}}
{{- $given := get .root.Values.workloads .object.metadata.name | default dict -}}
{{- if hasKey $given "replicas" -}}
  {{- $_ := set .object.spec "replicas" $given.replicas -}}
{{- end -}}
{{- include "kustomize.merge" (dict "into" $pod "from" (deepCopy ($given.pod | default dict))) -}}
{{- range $container := $pod.containers -}}
  {{- if eq .image "sluicegate" -}}
    {{- $_ := set . "image" $.image -}}
    {{- with $.root.Values.image.pullPolicy -}}
      {{- $_ := set $container "imagePullPolicy" . -}}
    {{- end -}}
  {{- end -}}
  {{- range .envFrom -}}
    {{- $_ := set .configMapRef "name" (get $.names .configMapRef.name | default .configMapRef.name) -}}
  {{- end -}}
  {{- include "kustomize.merge" (dict "into" . "from" (deepCopy ($given.container | default dict))) -}}
{{- end -}}
{{- if eq .object.kind "Job" -}}
  {{- /* What a Job runs cannot be changed: what it is to run is in its name. */ -}}
  {{- $_ := set .object.metadata "name" (printf "%s-%s" .object.metadata.name (toJson .object.spec | sha256sum | trunc 10)) -}}
{{- end -}}
{{- end -}}
