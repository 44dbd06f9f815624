// SPDX-License-Identifier: Apache-2.0

// Package clusterref finds the BrokerCluster that a Topic or a ConsumerGroup belongs to.
package clusterref

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

// Problem says why no BrokerCluster was found: a reason for a condition, and a message that says what to do.
type Problem struct {
	Reason  string
	Message string
}

// Resolve returns the BrokerCluster that a resource belongs to, of those of its namespace; kind is the resource's, for messages.
// That is the one that ref names. Where ref is empty it is the one that the resource has belonged to so far, so that a second
// cluster in the namespace takes nothing away from the first, and otherwise the only one.
func Resolve(kind, ref, sofar string, clusters []v1alpha1.BrokerCluster) (*v1alpha1.BrokerCluster, *Problem) {
	for _, name := range []string{ref, sofar} {
		if name == "" {
			continue
		}
		if i := slices.IndexFunc(clusters, func(c v1alpha1.BrokerCluster) bool { return c.Name == name }); i >= 0 {
			return &clusters[i], nil
		}
		if name == ref {
			return nil, &Problem{v1alpha1.ReasonClusterNotFound, fmt.Sprintf(
				"there is no BrokerCluster %s in this namespace; create it, or create this %s anew with another clusterRef", ref, kind)}
		}
	}
	switch len(clusters) {
	case 0:
		return nil, &Problem{v1alpha1.ReasonClusterNotFound, "there is no BrokerCluster in this namespace; create one"}
	case 1:
		return &clusters[0], nil
	}
	var names []string
	for i := range clusters {
		names = append(names, clusters[i].Name)
	}
	slices.Sort(names)
	const some = 5
	if len(names) > some {
		names = append(names[:some], fmt.Sprintf("%d more", len(names)-some))
	}
	return nil, &Problem{v1alpha1.ReasonClusterAmbiguous, fmt.Sprintf(
		"there are several BrokerClusters in this namespace (%s); create this %s anew with clusterRef set to one of them", strings.Join(names, ", "), kind)}
}
