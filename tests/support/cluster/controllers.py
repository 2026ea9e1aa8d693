"""What Kubernetes does by itself: places pods, makes claims and pods of workloads, and removes what nobody owns."""

from __future__ import annotations

import copy
import hashlib
import json
import time
from collections.abc import Mapping
from typing import Any

from tests.support.cluster.admission import admit, requested
from tests.support.cluster.kinds import kind_of
from tests.support.cluster.store import StatusError, Store, timestamp

_POD = kind_of("v1", "Pod")
_CLAIM = kind_of("resource.k8s.io/v1", "ResourceClaim")
_TEMPLATE = kind_of("resource.k8s.io/v1", "ResourceClaimTemplate")
_NODE = kind_of("v1", "Node")


class Controllers:
    """`step()` does what is to be done now, and says whether there was anything."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def step(self) -> bool:
        before = self._store.version
        self._collect()
        self._workloads()
        self._claims()
        self._schedule()
        return self._store.version != before

    # ---- owners

    def _collect(self) -> None:
        """An object all of whose owners are gone goes, pods with their grace."""
        living = {value["metadata"]["uid"] for value in self._store.objects.values()}
        for (kind, _, _), value in list(self._store.objects.items()):
            owners = value["metadata"].get("ownerReferences", ())
            if not owners or any(owner["uid"] in living for owner in owners):
                continue
            over = value.get("status", {}).get("phase") in ("Succeeded", "Failed")
            if kind == _POD and value["spec"].get("nodeName") and not over:
                if not value["metadata"].get("deletionTimestamp"):
                    self._mark(value)
            else:
                self._store.remove(kind, value)

    def _mark(self, pod: Mapping[str, Any]) -> None:
        grace = pod["spec"]["terminationGracePeriodSeconds"]

        def mark(new: dict[str, Any]) -> None:
            new["metadata"]["deletionTimestamp"] = timestamp(time.time() + grace)
            new["metadata"]["deletionGracePeriodSeconds"] = grace

        self._store.change(_POD, pod, mark)

    # ---- workloads

    def _workloads(self) -> None:
        for kind in ("StatefulSet", "Deployment"):
            for value in list(self._store.of("apps/v1", kind)):
                for number in range(value["spec"].get("replicas", 1)):
                    self._pod_of(value, f"{value['metadata']['name']}-{number}", {})
        for value in list(self._store.of("apps/v1", "DaemonSet")):
            for node in list(self._store.all(_NODE)):
                if _fits_labels(value["spec"]["template"]["spec"], node):
                    name = node["metadata"]["name"]
                    self._pod_of(value, f"{value['metadata']['name']}-{name}", {"nodeName": name})

    def _pod_of(self, owner: Mapping[str, Any], name: str, more: Mapping[str, Any]) -> None:
        """One pod of a workload; one of an older template is replaced."""
        metadata, template = owner["metadata"], copy.deepcopy(owner["spec"]["template"])
        digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]
        now = self._store.find(_POD, metadata["namespace"], name)
        if now is not None:
            if now["metadata"]["labels"].get("controller-revision-hash") != digest:
                if not now["metadata"].get("deletionTimestamp"):
                    if now["spec"].get("nodeName"):
                        self._mark(now)
                    else:
                        self._store.remove(_POD, now)
            elif now["status"]["phase"] in ("Succeeded", "Failed"):
                self._store.remove(_POD, now)
            return
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **template.get("metadata", {}),
                "name": name,
                "namespace": metadata["namespace"],
                "ownerReferences": [
                    {
                        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"],
                        "uid": metadata["uid"], "controller": True,
                    }
                ],
            },
            "spec": {**template["spec"], **more},
        }  # fmt: skip
        pod["metadata"]["labels"] = {**pod["metadata"].get("labels", {}), "controller-revision-hash": digest}
        for claim in owner["spec"].get("volumeClaimTemplates", ()):
            found = f"{claim['metadata']['name']}-{name}"
            volume = {"name": claim["metadata"]["name"], "persistentVolumeClaim": {"claimName": found}}
            pod["spec"].setdefault("volumes", []).append(volume)
            self._volume_claim(claim, found, metadata["namespace"])
        try:
            admit(self._store, _POD, pod, None)
            self._store.put(_POD, pod)
        except StatusError:
            return  # as a workload that may make no pod: it is tried again

    def _volume_claim(self, claim: Mapping[str, Any], name: str, namespace: str) -> None:
        kind = kind_of("v1", "PersistentVolumeClaim")
        if self._store.find(kind, namespace, name) is None:
            made = copy.deepcopy(dict(claim))
            made |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
            made["metadata"] = {**made["metadata"], "name": name, "namespace": namespace}
            self._store.put(kind, made)

    # ---- devices

    def _claims(self) -> None:
        """A claim for each pod that asks for one by a template; those of pods that have ended go."""
        for claim in list(self._store.all(_CLAIM)):
            owner = claim["metadata"].get("ownerReferences", [{}])[0].get("name", "-")
            pod = self._store.find(_POD, claim["metadata"]["namespace"], owner)
            if pod is not None and pod["status"]["phase"] in ("Succeeded", "Failed"):
                self._store.remove(_CLAIM, claim)
        for pod in list(self._store.all(_POD)):
            if pod["status"]["phase"] in ("Succeeded", "Failed"):
                continue
            made = {one["name"] for one in pod["status"].get("resourceClaimStatuses", ())}
            for asked in pod["spec"].get("resourceClaims", ()):
                if asked["name"] in made or "resourceClaimTemplateName" not in asked:
                    continue
                namespace = pod["metadata"]["namespace"]
                template = self._store.find(_TEMPLATE, namespace, asked["resourceClaimTemplateName"])
                if template is None:
                    continue
                name = f"{pod['metadata']['name']}-{asked['name']}"
                owner = {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": pod["metadata"]["name"],
                    "uid": pod["metadata"]["uid"],
                }
                self._store.put(
                    _CLAIM,
                    {
                        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                        "metadata": {
                            **template["spec"].get("metadata", {}), "name": name, "namespace": namespace,
                            "ownerReferences": [{**owner, "controller": True}],
                        },
                        "spec": template["spec"]["spec"],
                    },
                )  # fmt: skip

                def note(new: dict[str, Any], name: str = name, asked: Mapping[str, Any] = asked) -> None:
                    found = {"name": asked["name"], "resourceClaimName": name}
                    new["status"].setdefault("resourceClaimStatuses", []).append(found)

                self._store.change(_POD, pod, note)

    def _schedule(self) -> None:
        for pod in list(self._store.all(_POD)):
            if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
                continue
            nodes = list(self._store.all(_NODE))
            lacks = [self._lacks(pod, node) for node in nodes]
            if "" in lacks:
                name = nodes[lacks.index("")]["metadata"]["name"]
                self._allocate(pod, name)
                self._set(pod, name, "")
            else:
                counted = {lack: lacks.count(lack) for lack in lacks}
                text = ", ".join(f"{count} {lack}" for lack, count in sorted(counted.items()))
                many = len(nodes)
                self._set(
                    pod, "", f"0/{many} nodes are available: {text}. preemption: 0/{many} nodes are available: "
                    f"{many} Preemption is not helpful for scheduling.",
                )  # fmt: skip

    def _lacks(self, pod: Mapping[str, Any], node: Mapping[str, Any]) -> str:
        """Why a node will not do, in the scheduler's words; empty: it will."""
        spec = pod["spec"]
        if not _fits_labels(spec, node):
            return "node(s) didn't match Pod's node affinity/selector"
        for taint in node["spec"].get("taints", ()):
            tolerated = any(
                one.get("key") in (None, taint["key"])
                and (one.get("operator") == "Exists" or one.get("value", "") == taint.get("value", ""))
                and one.get("effect") in (None, taint["effect"])
                for one in spec.get("tolerations", ())
            )
            if not tolerated:
                return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
        for resource, amount in node["status"]["allocatable"].items():
            if "/" in resource and requested(pod, resource) > int(amount) - self._used(node, resource):
                return f"Insufficient {resource}"
        asked = [
            resource
            for container in spec["containers"]
            for resource in container.get("resources", {}).get("requests", {})
            if "/" in resource and resource not in node["status"]["allocatable"]
        ]
        if asked:
            return f"Insufficient {asked[0]}"
        return (
            "" if self._free_for(pod, node["metadata"]["name"]) is not None else "cannot allocate all claims"
        )

    def _used(self, node: Mapping[str, Any], resource: str) -> int:
        return sum(
            requested(pod, resource)
            for pod in self._store.all(_POD)
            if pod["spec"].get("nodeName") == node["metadata"]["name"]
            and pod["status"]["phase"] not in ("Succeeded", "Failed")
        )

    def _free_for(
        self, pod: Mapping[str, Any], node: str
    ) -> list[tuple[Mapping[str, Any], list[str]]] | None:
        """Devices for each claim of a pod; None: there are too few, or a claim is not made yet."""
        found = []
        taken = {
            result["device"]
            for claim in self._store.all(_CLAIM)
            for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
        }
        for asked in pod["spec"].get("resourceClaims", ()):
            status = {one["name"]: one for one in pod["status"].get("resourceClaimStatuses", ())}
            claim = self._store.find(
                _CLAIM,
                pod["metadata"]["namespace"],
                status.get(asked["name"], {}).get("resourceClaimName", "-"),
            )
            if claim is None:
                return None
            count = claim["spec"]["devices"]["requests"][0]["exactly"].get("count", 1)
            free = [device for device in self.claimable(node) if device not in taken][:count]
            if len(free) < count:
                return None
            taken |= set(free)
            found.append((claim, free))
        return found

    def claimable(self, node: str) -> list[str]:
        """Devices of a node that claims may have; its annotation names them."""
        found = self._store.get(_NODE, "", node)["metadata"].get("annotations", {}).get("claimable", "")
        return [name for name in found.split(",") if name]

    def _allocate(self, pod: Mapping[str, Any], node: str) -> None:
        for claim, devices in self._free_for(pod, node) or ():
            request = claim["spec"]["devices"]["requests"][0]["name"]
            results = [
                {"request": request, "driver": "gpu.nvidia.com", "pool": node, "device": device}
                for device in devices
            ]
            reserved = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
            status = {"allocation": {"devices": {"results": results}}, "reservedFor": [reserved]}

            def allocate(new: dict[str, Any], status: Mapping[str, Any] = status) -> None:
                new["status"] = status

            self._store.change(_CLAIM, claim, allocate)

    def _set(self, pod: Mapping[str, Any], node: str, lacks: str) -> None:
        condition = {"type": "PodScheduled", "status": "True" if node else "False"}
        if lacks:
            condition |= {"reason": "Unschedulable", "message": lacks}

        def place(new: dict[str, Any]) -> None:
            others = [one for one in new["status"].get("conditions", ()) if one["type"] != "PodScheduled"]
            new["status"]["conditions"] = [*others, condition]
            if node:
                new["spec"]["nodeName"] = node

        self._store.change(_POD, pod, place)


def _fits_labels(spec: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    labels = node["metadata"].get("labels", {})
    return all(labels.get(key) == value for key, value in spec.get("nodeSelector", {}).items())
