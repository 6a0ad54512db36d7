package deploycheck

import (
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// checkWorkload looks at what belongs to one workload alone.
func (c *Cluster) checkWorkload(w workload) {
	where := w.kind + " " + w.name
	if w.selector == nil {
		c.fault("%s: it has no selector", where)
	} else if s, err := metav1.LabelSelectorAsSelector(w.selector); err != nil {
		c.fault("%s: selector: %w", where, err)
	} else if s.Empty() || !s.Matches(labels.Set(w.template.Labels)) {
		c.fault("%s: its selector %s does not match its pods' labels %v", where, s, w.template.Labels)
	}
	for _, constraint := range w.template.Spec.TopologySpreadConstraints {
		if !slices.ContainsFunc(c.matching(constraint.LabelSelector), func(m workload) bool { return m.name == w.name }) {
			c.fault("%s: a topologySpreadConstraint does not count its own pods", where)
		}
	}
	if w.kind == "StatefulSet" {
		service := c.service(w.service)
		if service == nil || service.Spec.ClusterIP != corev1.ClusterIPNone {
			c.fault("%s: serviceName %q is not a headless Service here", where, w.service)
		} else if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(w.template.Labels)) {
			c.fault("%s: its Service %s does not select its pods", where, w.service)
		}
	}
}

// checkPod looks at the pods of a workload.
func (c *Cluster) checkPod(w workload) {
	where, pod := w.kind+" "+w.name, w.template.Spec
	c.checkVolumes(where, pod)
	restricted := pod.SecurityContext
	if restricted == nil || !isTrue(restricted.RunAsNonRoot) || restricted.RunAsUser == nil || *restricted.RunAsUser == 0 ||
		restricted.SeccompProfile == nil || restricted.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		c.fault("%s: its pods need runAsNonRoot, a runAsUser and the seccomp profile RuntimeDefault", where)
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		c.fault("%s: its pods do not ask Kubernetes anything and need no token: automountServiceAccountToken: false", where)
	}
	if pod.TerminationGracePeriodSeconds == nil {
		c.fault("%s: it has no terminationGracePeriodSeconds", where)
	}
	for _, container := range pod.Containers {
		c.checkContainer(where+", container "+container.Name, w, container)
	}
}

func (c *Cluster) checkContainer(where string, w workload, container corev1.Container) {
	if s := container.SecurityContext; s == nil || !isTrue(s.ReadOnlyRootFilesystem) || s.AllowPrivilegeEscalation == nil ||
		*s.AllowPrivilegeEscalation || s.Capabilities == nil || !slices.Contains(s.Capabilities.Drop, "ALL") {
		c.fault("%s: it needs readOnlyRootFilesystem, no allowPrivilegeEscalation, and all capabilities dropped", where)
	}
	if container.Resources.Requests.Cpu().IsZero() || container.Resources.Requests.Memory().IsZero() || container.Resources.Limits.Memory().IsZero() {
		c.fault("%s: it needs requests for CPU and memory, and a limit for memory", where)
	} else if container.Resources.Requests.Memory().Cmp(*container.Resources.Limits.Memory()) > 0 {
		c.fault("%s: it requests more memory than its limit", where)
	}
	for name, probe := range map[string]*corev1.Probe{
		"startupProbe": container.StartupProbe, "livenessProbe": container.LivenessProbe, "readinessProbe": container.ReadinessProbe,
	} {
		switch {
		case probe == nil:
			c.fault("%s: it has no %s", where, name)
		case probe.HTTPGet == nil:
			c.fault("%s: %s asks for nothing over HTTP", where, name)
		case probe.HTTPGet.Port.Type == intstr.String && !w.opens(probe.HTTPGet.Port.StrVal, 0),
			probe.HTTPGet.Port.Type == intstr.Int && !w.opens("", probe.HTTPGet.Port.IntVal):
			c.fault("%s: %s: no port %s is open", where, name, probe.HTTPGet.Port.String())
		case !strings.HasPrefix(probe.HTTPGet.Path, "/"):
			c.fault("%s: %s: path %q", where, name, probe.HTTPGet.Path)
		}
	}
	c.checkVariables(where, container)
	c.checkCards(where, container)
}

// onCard finds an argument that has a model run on a card.
var onCard = regexp.MustCompile(`\.device=cuda(:[0-9]+)?$`)

// checkCards: who runs models on a card is given one, whole, shared or a MIG instance of it, and
// who is given one uses it.
func (c *Cluster) checkCards(where string, container corev1.Container) {
	given := false
	for name := range container.Resources.Limits {
		given = given || strings.HasPrefix(string(name), "nvidia.com/")
	}
	uses := slices.ContainsFunc(container.Args, onCard.MatchString)
	if uses && !given {
		c.fault("%s: a model runs on a card, and there is no nvidia.com/gpu among its limits", where)
	}
	if given && !uses {
		c.fault("%s: it is given a card, and none of its models runs on a card", where)
	}
}

// variable is a reference $(NAME), which the kubelet replaces.
var variable = regexp.MustCompile(`\$\(([A-Za-z_][A-Za-z0-9_]*)\)`)

// checkVariables: a reference to a variable that is not declared, or in a variable's
// value declared only later, stays in the text as it is, and no one complains.
func (c *Cluster) checkVariables(where string, container corev1.Container) {
	declared := map[string]bool{}
	for _, e := range container.Env {
		for _, m := range variable.FindAllStringSubmatch(e.Value, -1) {
			if !declared[m[1]] {
				c.fault("%s: variable %s refers to $(%s), which is not declared before it", where, e.Name, m[1])
			}
		}
		if declared[e.Name] {
			c.fault("%s: variable %s is declared twice", where, e.Name)
		}
		declared[e.Name] = true
	}
	for _, text := range slices.Concat(container.Command, container.Args) {
		for _, m := range variable.FindAllStringSubmatch(text, -1) {
			if !declared[m[1]] {
				c.fault("%s: argument %q refers to $(%s), which is not declared", where, text, m[1])
			}
		}
	}
}

// checkVolumes follows volumes to what they show and mounts to volumes.
func (c *Cluster) checkVolumes(where string, pod corev1.PodSpec) {
	mounted := map[string]bool{}
	for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, m := range container.VolumeMounts {
			mounted[m.Name] = true
			if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
				c.fault("%s: nothing is called %q of what is mounted at %s", where, m.Name, m.MountPath)
			}
		}
		for _, e := range container.Env {
			if from := e.ValueFrom; from != nil && from.SecretKeyRef != nil {
				c.refer(where, "secret", from.SecretKeyRef.Name, []corev1.KeyToPath{{Key: from.SecretKeyRef.Key}})
			} else if from != nil && from.ConfigMapKeyRef != nil {
				c.refer(where, "configmap", from.ConfigMapKeyRef.Name, []corev1.KeyToPath{{Key: from.ConfigMapKeyRef.Key}})
			}
		}
		for _, e := range container.EnvFrom {
			if e.SecretRef != nil {
				c.refer(where, "secret", e.SecretRef.Name, nil)
			}
			if e.ConfigMapRef != nil {
				c.refer(where, "configmap", e.ConfigMapRef.Name, nil)
			}
		}
	}
	for _, v := range pod.Volumes {
		if !mounted[v.Name] {
			c.fault("%s: volume %s is not mounted", where, v.Name)
		}
		switch {
		case v.ConfigMap != nil:
			c.refer(where, "configmap", v.ConfigMap.Name, v.ConfigMap.Items)
		case v.Secret != nil:
			c.refer(where, "secret", v.Secret.SecretName, v.Secret.Items)
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.ConfigMap != nil {
					c.refer(where, "configmap", s.ConfigMap.Name, s.ConfigMap.Items)
				}
				if s.Secret != nil {
					c.refer(where, "secret", s.Secret.Name, s.Secret.Items)
				}
			}
		case v.PersistentVolumeClaim != nil:
			c.fault("%s: volume %s: no PersistentVolumeClaim is here", where, v.Name)
		case v.EmptyDir == nil:
			c.fault("%s: volume %s shows nothing that is known here", where, v.Name)
		}
	}
}

// refer notes that an object is used, and complains if neither it is here, with these
// keys, nor the user makes it.
func (c *Cluster) refer(where, kind, name string, items []corev1.KeyToPath) {
	id := kind + "/" + name
	c.used[id] = true
	keys, there := c.supplied[id]
	if m := c.configMap(name); kind == "configmap" && m != nil {
		there, keys = true, nil
		for key := range m.Data {
			keys = append(keys, key)
		}
	}
	if !there {
		c.fault("%s: %s is neither here nor in the README's list of what the user makes", where, id)
		return
	}
	for _, item := range items {
		if !slices.Contains(keys, item.Key) {
			c.fault("%s: %s has no key %q, it has %v", where, id, item.Key, keys)
		}
	}
}

// checkUnused: what is generated and not mounted was meant for something.
func (c *Cluster) checkUnused() {
	for _, m := range c.configMaps {
		if !c.used["configmap/"+m.Name] {
			c.fault("configmap/%s is not used", m.Name)
		}
	}
}

// checkImages: gateways and workers are one program.
func (c *Cluster) checkImages() {
	images := map[string]string{}
	for _, w := range c.workloads {
		for _, container := range w.template.Spec.Containers {
			repository, _, tagged := strings.Cut(path.Base(container.Image), ":")
			if !tagged {
				c.fault("%s %s: image %s has no tag", w.kind, w.name, container.Image)
			}
			if other := images[repository]; other != "" && other != container.Image {
				c.fault("%s %s: image %s, where another workload has %s", w.kind, w.name, container.Image, other)
			}
			images[repository] = container.Image
		}
	}
}

// shows reports whether a container finds a file at a path, by its mounts.
func (w workload) shows(container corev1.Container, file string) bool {
	for _, m := range container.VolumeMounts {
		name, below := strings.CutPrefix(file, m.MountPath+"/")
		if !below {
			continue
		}
		for _, v := range w.template.Spec.Volumes {
			if v.Name != m.Name {
				continue
			}
			switch {
			case v.Secret != nil:
				return slices.ContainsFunc(v.Secret.Items, func(i corev1.KeyToPath) bool { return i.Path == name })
			case v.ConfigMap != nil:
				return len(v.ConfigMap.Items) == 0 || slices.ContainsFunc(v.ConfigMap.Items, func(i corev1.KeyToPath) bool { return i.Path == name })
			}
			return v.Projected != nil
		}
	}
	return false
}

func isTrue(b *bool) bool { return b != nil && *b }
