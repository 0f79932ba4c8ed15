"""Pods from creation to deletion: scheduler, kubelets, autoscaler and volumes.

Enters: pods, nodes and claims.
Inside: pods get a node that fits (`scheduling`), wait for their volumes (`volumes`), run for their
duration and end (`pods`).
Leaves: the pods' `nodeName` and status, bound claims, and nodes that the autoscaler adds.
"""
