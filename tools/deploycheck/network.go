package deploycheck

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func (c *Cluster) service(name string) *corev1.Service {
	for _, s := range c.services {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// checkServices: each selects pods, and they open its ports.
func (c *Cluster) checkServices() {
	for _, s := range c.services {
		pods := c.matching(metav1.SetAsLabelSelector(s.Spec.Selector))
		if len(s.Spec.Selector) == 0 || len(pods) == 0 {
			c.fault("Service %s selects no pods: %v", s.Name, s.Spec.Selector)
		}
		for _, w := range pods {
			for _, p := range s.Spec.Ports {
				if !w.opens(p.TargetPort.StrVal, p.TargetPort.IntVal) {
					c.fault("Service %s: port %s: the pods of %s do not open %s", s.Name, p.Name, w.name, p.TargetPort.String())
				}
			}
		}
	}
}

func (c *Cluster) checkBudgets() {
	for _, b := range c.budgets {
		pods := c.matching(b.Spec.Selector)
		if b.Spec.Selector == nil || len(b.Spec.Selector.MatchLabels) == 0 || len(pods) == 0 {
			c.fault("PodDisruptionBudget %s selects no pods", b.Name)
		}
		for _, w := range pods {
			if w.replicas != nil && *w.replicas < 2 {
				c.fault("PodDisruptionBudget %s: %s has one pod", b.Name, w.name)
			}
		}
		if b.Spec.MaxUnavailable == nil || b.Spec.MaxUnavailable.IntValue() < 1 {
			c.fault("PodDisruptionBudget %s: without maxUnavailable of 1 or more it can stop a node from ever being drained", b.Name)
		}
	}
}

// checkPolicies: each selects pods, the ports are theirs or their peers', and every
// workload is somebody's to talk to.
func (c *Cluster) checkPolicies() {
	denies := false
	for _, p := range c.policies {
		own := c.matching(&p.Spec.PodSelector)
		if len(own) == 0 {
			c.fault("NetworkPolicy %s selects no pods", p.Name)
		}
		denies = denies || len(p.Spec.PolicyTypes) == 2 && len(own) == len(c.workloads) && p.Spec.Ingress == nil && p.Spec.Egress == nil
		for _, rule := range p.Spec.Ingress {
			c.checkPeers(p.Name, rule.From)
			c.checkPolicyPorts(p.Name, rule.Ports, own)
		}
		for _, rule := range p.Spec.Egress {
			for _, pods := range c.checkPeers(p.Name, rule.To) {
				c.checkPolicyPorts(p.Name, rule.Ports, pods)
			}
		}
	}
	if len(c.policies) > 0 && !denies {
		c.fault("no NetworkPolicy refuses what the others do not name")
	}
}

// checkPeers returns the pods of this kustomization that each peer names.
func (c *Cluster) checkPeers(policy string, peers []networkingv1.NetworkPolicyPeer) [][]workload {
	var all [][]workload
	for _, peer := range peers {
		if peer.PodSelector == nil || peer.NamespaceSelector != nil {
			continue // others
		}
		pods := c.matching(peer.PodSelector)
		if len(pods) == 0 {
			c.fault("NetworkPolicy %s: a peer selects no pods", policy)
		}
		all = append(all, pods)
	}
	return all
}

func (c *Cluster) checkPolicyPorts(policy string, ports []networkingv1.NetworkPolicyPort, pods []workload) {
	for _, w := range pods {
		for _, p := range ports {
			if p.Port == nil {
				continue
			}
			if !w.opens(p.Port.StrVal, p.Port.IntVal) {
				c.fault("NetworkPolicy %s: the pods of %s do not open %s", policy, w.name, p.Port.String())
			}
		}
	}
}

// address is one that a command line or a configuration names.
var address = regexp.MustCompile(`\b(?:nats|tls|ws|wss|http|https)://([A-Za-z0-9.-]+):(\d+)`)

// reaches reports whether somebody answers at a host and port, as seen from the
// namespace: a Service, or a pod of a StatefulSet below its headless Service.
func (c *Cluster) reaches(host string, port int32) bool {
	name, below, isPod := strings.Cut(host, ".")
	service := c.service(name)
	if isPod {
		if service = c.service(below); service == nil || service.Spec.ClusterIP != corev1.ClusterIPNone {
			return false
		}
		found := false
		for _, w := range c.workloads {
			n := "-"
			if w.kind == "StatefulSet" && w.service == below {
				_, n, _ = strings.Cut(name, w.name+"-")
			}
			found = found || w.kind == "StatefulSet" && w.replicas != nil && name == w.name+"-"+n && ordinal(n) < *w.replicas &&
				labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(w.template.Labels))
		}
		if !found {
			return false
		}
	}
	if service == nil {
		return false
	}
	for _, p := range service.Spec.Ports {
		if p.Port == port {
			return true
		}
	}
	return false
}

// ordinal is the number of a StatefulSet's pod; the largest number for what is none.
func ordinal(text string) int32 {
	n := intstr.Parse(text)
	if n.Type != intstr.Int {
		return 1<<31 - 1
	}
	return n.IntVal
}
