{{/*
The chart has no objects of its own: it reads the folders of deploy/kubernetes, as `kubectl kustomize` does, as far
as those go. What it understands of a kustomization.yaml: resources, components, configMapGenerator (files, literals,
merge), patches (RFC 6902 and strategic merge, by target or by name, $patch: delete).
A test renders each overlay and component with both and compares.
*/}}

{{/* The text of a file, for the release's namespace. */}}
{{- define "kustomize.text" -}}
{{- $text := .root.Files.Get .path -}}
{{- $ns := .root.Release.Namespace -}}
{{- range $before := list "namespace: " "serviceaccount:" "inject-ca-from: " "kube-system, " "kueue-system, " -}}
{{- $text = regexReplaceAll (printf "%ssluicegate\\b" $before) $text (printf "%s%s" $before $ns) -}}
{{- end -}}
{{- $text | replace ".sluicegate.svc" (printf ".%s.svc" $ns) -}}
{{- end -}}

{{/* Read the folder `dir` into .state: objects, and maps (name → data) that become ConfigMaps. */}}
{{- define "kustomize.read" -}}
{{- $own := include "kustomize.text" (dict "root" .root "path" (printf "%s/kustomization.yaml" .dir)) | fromYaml -}}
{{- range concat ($own.resources | default list) ($own.components | default list) -}}
  {{- $path := clean (printf "%s/%s" $.dir .) -}}
  {{- if hasSuffix ".yaml" $path -}}
    {{- range regexSplit "(?m)^---$" (include "kustomize.text" (dict "root" $.root "path" $path)) -1 -}}
      {{- with fromYaml . -}}
        {{- $_ := set $.state "objects" (append $.state.objects .) -}}
      {{- end -}}
    {{- end -}}
  {{- else -}}
    {{- include "kustomize.read" (dict "root" $.root "state" $.state "dir" $path) -}}
  {{- end -}}
{{- end -}}
{{- range $own.configMapGenerator -}}
  {{- $data := get $.state.maps .name | default dict -}}
  {{- range .literals -}}
    {{- $_ := set $data (regexFind "^[^=]*" .) (regexReplaceAll "^[^=]*=" . "") -}}
  {{- end -}}
  {{- range .files -}}
    {{- $file := regexReplaceAll "^.*=" . "" -}}
    {{- $key := contains "=" . | ternary (regexFind "^[^=]*" .) (base $file) -}}
    {{- $_ := set $data $key (include "kustomize.text" (dict "root" $.root "path" (clean (printf "%s/%s" $.dir $file)))) -}}
  {{- end -}}
  {{- $_ := set $.state.maps .name $data -}}
{{- end -}}
{{- range $own.patches -}}
  {{- $text := .patch -}}
  {{- if .path -}}
    {{- $text = include "kustomize.text" (dict "root" $.root "path" (clean (printf "%s/%s" $.dir .path))) -}}
  {{- end -}}
  {{- $target := .target -}}
  {{- range regexSplit "(?m)^---$" $text -1 -}}
    {{- include "kustomize.patch" (dict "state" $.state "target" $target "text" .) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* Apply one patch to those objects that it is for. */}}
{{- define "kustomize.patch" -}}
{{- $operations := list -}}
{{- $fields := dict -}}
{{- if regexMatch "(?m)^- op:" .text -}}
  {{- $operations = fromYamlArray .text -}}
{{- else -}}
  {{- $fields = fromYaml .text -}}
{{- end -}}
{{- $target := .target | default (dict "kind" $fields.kind "name" (dig "metadata" "name" "" $fields)) -}}
{{- $kept := list -}}
{{- range $object := .state.objects -}}
  {{- $named := regexMatch (printf "^(?:%s)$" ($target.name | default ".*")) $object.metadata.name -}}
  {{- if not (and $named (regexMatch (printf "^(?:%s)$" $target.kind) $object.kind)) -}}
    {{- $kept = append $kept $object -}}
  {{- else if ne (get $fields "$patch") "delete" -}}
    {{- $kept = append $kept $object -}}
    {{- range $operations -}}
      {{- include "kustomize.operation" (dict "object" $object "op" .) -}}
    {{- end -}}
    {{- include "kustomize.merge" (dict "into" $object "from" (omit $fields "apiVersion" "kind" "metadata")) -}}
  {{- end -}}
{{- end -}}
{{- $_ := set .state "objects" $kept -}}
{{- if and (eq $target.kind "ConfigMap") (eq (get $fields "$patch") "delete") -}}
  {{- $_ := unset .state.maps $target.name -}}
{{- end -}}
{{- end -}}

{{/* RFC 6902: add or replace, at a key or at the end of a list. */}}
{{- define "kustomize.operation" -}}
{{- $way := splitList "/" (trimPrefix "/" .op.path) -}}
{{- $appends := eq (last $way) "-" -}}
{{- if $appends -}}
  {{- $way = initial $way -}}
{{- end -}}
{{- $at := .object -}}
{{- range initial $way -}}
  {{- if kindIs "slice" $at -}}
    {{- $at = index $at (int .) -}}
  {{- else -}}
    {{- $at = get $at . -}}
  {{- end -}}
{{- end -}}
{{- $value := deepCopy (dict "value" .op.value) -}}
{{- if $appends -}}
  {{- $_ := set $at (last $way) (append (get $at (last $way)) $value.value) -}}
{{- else -}}
  {{- $_ := set $at (last $way) $value.value -}}
{{- end -}}
{{- end -}}

{{/* Strategic merge: maps by key, lists of named things by name, all else replaced; null removes. */}}
{{- define "kustomize.merge" -}}
{{- $names := dict "containers" "name" "env" "name" "volumes" "name" "volumeMounts" "mountPath" -}}
{{- range $key, $value := .from -}}
  {{- $old := get $.into $key -}}
  {{- if kindIs "invalid" $value -}}
    {{- $_ := unset $.into $key -}}
  {{- else if and (kindIs "map" $value) (kindIs "map" $old) -}}
    {{- include "kustomize.merge" (dict "into" $old "from" $value) -}}
  {{- else if and (kindIs "slice" $old) (or (hasKey $names $key) (eq $key "ports")) -}}
    {{- $by := get $names $key | default (hasKey (first $value) "containerPort" | ternary "containerPort" "port") -}}
    {{- range $item := $value -}}
      {{- $found := false -}}
      {{- range $old -}}
        {{- if eq (get . $by) (get $item $by) -}}
          {{- $found = true -}}
          {{- include "kustomize.merge" (dict "into" . "from" $item) -}}
        {{- end -}}
      {{- end -}}
      {{- if not $found -}}
        {{- $_ := set $.into $key (append (get $.into $key) $item) -}}
      {{- end -}}
    {{- end -}}
  {{- else -}}
    {{- $_ := set $.into $key $value -}}
  {{- end -}}
{{- end -}}
{{- end -}}
