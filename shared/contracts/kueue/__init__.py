"""Our models of the `kueue.x-k8s.io` kinds, as the API server holds them, and their definitions.

The models say what fits: names, types, limits, defaults and the rules that one object alone can
break. The schemas in `deploy/kubernetes/crds` and the shape checks of the webhook come from them.
"""
