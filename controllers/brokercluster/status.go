// SPDX-License-Identifier: Apache-2.0

package brokercluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
	"github.com/ringmaster-dev/ringmaster/controllers/internal/apply"
	"github.com/ringmaster-dev/ringmaster/controllers/resources"
)

// named is how many names a message lists before it says how many more there are.
const named = 3

// actionReconcile is the action of every event.
const actionReconcile = "Reconcile"

// setStatus writes the status that follows from the facts, if it differs from the one that is there, and records an event
// for a refusal that is new.
func (r *Reconciler) setStatus(ctx context.Context, c *v1alpha1.BrokerCluster, f facts, p plan, o outcome) error {
	before := c.DeepCopy()
	c.Status = status(c, f, p, o)
	wrote, err := apply.Status(ctx, r.Client, c, before)
	if err != nil || !wrote {
		return err
	}
	is, was := ready(c), ready(before)
	if refusals[is.Reason] && (was == nil || was.Reason != is.Reason || was.Message != is.Message) {
		r.Recorder.Eventf(c, nil, corev1.EventTypeWarning, is.Reason, actionReconcile, "%s", apply.Note(is.Message))
	}
	return nil
}

// refusals are the reasons that are worth an event.
var refusals = map[string]bool{
	v1alpha1.ReasonApplyFailed:         true,
	v1alpha1.ReasonScaleDownRefused:    true,
	v1alpha1.ReasonVolumeGrowthRefused: true,
}

func ready(c *v1alpha1.BrokerCluster) *metav1.Condition {
	return meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady)
}

// status computes the status from the facts and from what became of the plan.
func status(c *v1alpha1.BrokerCluster, f facts, p plan, o outcome) v1alpha1.BrokerClusterStatus {
	s := v1alpha1.BrokerClusterStatus{
		ObservedGeneration: c.Generation,
		Replicas:           p.replicas,
		Selector:           labels.SelectorFromSet(resources.SelectorLabels(c)).String(),
		BootstrapServers:   resources.BootstrapServers(c),
		Conditions:         slices.Clone(c.Status.Conditions),
	}
	var notReady []string
	for id := int32(resources.FirstBrokerID); id < resources.FirstBrokerID+p.replicas; id++ {
		b := v1alpha1.BrokerStatus{
			ID:      id,
			PodName: resources.PodName(c, id),
			Host:    resources.BrokerHost(c, id),
			Port:    resources.ClientPort(c),
			Phase:   v1alpha1.BrokerNotReady,
		}
		if f.ready[b.PodName] {
			b.Phase = v1alpha1.BrokerReady
			s.ReadyReplicas++
		} else {
			notReady = append(notReady, b.PodName)
		}
		s.Brokers = append(s.Brokers, b)
	}
	condition := readyCondition(c, f, p, o, notReady)
	condition.ObservedGeneration = c.Generation
	meta.SetStatusCondition(&s.Conditions, condition)
	return s
}

// readyCondition is true if the cluster is what its spec asks for. What the operator could not or would not do comes before
// what brokers have yet to do.
func readyCondition(c *v1alpha1.BrokerCluster, f facts, p plan, o outcome, notReady []string) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}
	switch {
	case o.apply != nil:
		condition.Reason = v1alpha1.ReasonApplyFailed
		condition.Message = apply.Message("cannot write the cluster's objects, trying again: " + o.apply.Error())
	case p.replicas > p.asked:
		condition.Reason = v1alpha1.ReasonScaleDownRefused
		condition.Message = scaleDownRefused(p)
	case o.grow != nil:
		condition.Reason = v1alpha1.ReasonVolumeGrowthRefused
		condition.Message = apply.Message("cannot grow the brokers' volumes, trying again; their StorageClass must allow expansion: " + o.grow.Error())
	case len(notReady) > 0:
		condition.Reason = v1alpha1.ReasonBrokersNotReady
		condition.Message = apply.Message(fmt.Sprintf("%d of %d brokers answer; not ready: %s; %s",
			int(p.replicas)-len(notReady), p.replicas, enumerate(notReady), whyNotReady(c, f, notReady)))
	default:
		condition.Status = metav1.ConditionTrue
		condition.Reason = v1alpha1.ReasonBrokersReady
		condition.Message = fmt.Sprintf("%d of %d brokers answer", p.replicas, p.replicas)
	}
	return condition
}

// whyNotReady says what is wrong with the first of the pods of which that is known, and where to see more.
func whyNotReady(c *v1alpha1.BrokerCluster, f facts, notReady []string) string {
	for _, name := range notReady {
		if why := f.troubles[name]; why != "" {
			return fmt.Sprintf("%s %s; to see more: kubectl --namespace %s describe pod %s", name, why, c.Namespace, name)
		}
	}
	if _, exists := f.troubles[notReady[0]]; !exists && f.statefulSet != nil {
		return fmt.Sprintf("%s does not exist yet; to see why: kubectl --namespace %s describe statefulset %s", notReady[0], c.Namespace, resources.StatefulSetName(c))
	}
	return fmt.Sprintf("to see why: kubectl --namespace %s describe pod %s", c.Namespace, notReady[0])
}

func scaleDownRefused(p plan) string {
	topics := map[string]bool{}
	var brokers []string
	for _, id := range slices.Sorted(maps.Keys(p.kept)) {
		brokers = append(brokers, strconv.Itoa(int(id)))
		for _, topic := range p.kept[id] {
			topics[topic] = true
		}
	}
	warning := ""
	if topics[v1alpha1.TopicConsumerOffsets] {
		warning = "; " + v1alpha1.TopicConsumerOffsets + " holds the committed offsets of all consumer groups, which go with it"
	}
	return fmt.Sprintf("spec.replicas is %d, but partitions of %s have their records on broker %s alone; %d brokers go on running; set spec.replicas to %d, or delete those topics first%s",
		p.asked, enumerate(slices.Sorted(maps.Keys(topics))), enumerate(brokers), p.replicas, p.replicas, warning)
}

// enumerate lists the first names and counts the rest.
func enumerate(names []string) string {
	if len(names) <= named {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:named], ", "), len(names)-named)
}
