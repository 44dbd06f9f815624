// SPDX-License-Identifier: Apache-2.0

package clusterref

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ringmaster-dev/ringmaster/api/v1alpha1"
)

func TestResolve(t *testing.T) {
	tests := map[string]struct {
		ref, sofar  string
		clusters    []string
		want        string
		wantReason  string
		wantMessage string
	}{
		"the one that is named":                       {ref: "b", clusters: []string{"a", "b"}, want: "b"},
		"the one that is named, whatever it was":      {ref: "b", sofar: "a", clusters: []string{"a", "b"}, want: "b"},
		"the only one":                                {clusters: []string{"a"}, want: "a"},
		"the one that it was, when a second one came": {sofar: "b", clusters: []string{"a", "b"}, want: "b"},
		"the only one, when the one that it was went": {sofar: "b", clusters: []string{"a"}, want: "a"},
		"none of that name": {
			ref: "c", sofar: "a", clusters: []string{"a"}, wantReason: v1alpha1.ReasonClusterNotFound,
			wantMessage: "there is no BrokerCluster c in this namespace; create it, or create this Topic anew with another clusterRef",
		},
		"none at all": {
			wantReason: v1alpha1.ReasonClusterNotFound, wantMessage: "there is no BrokerCluster in this namespace; create one",
		},
		"several": {
			clusters: []string{"c", "a", "b"}, wantReason: v1alpha1.ReasonClusterAmbiguous,
			wantMessage: "there are several BrokerClusters in this namespace (a, b, c); create this Topic anew with clusterRef set to one of them",
		},
		"more than fit in a line": {
			clusters: []string{"a", "b", "c", "d", "e", "f", "g"}, wantReason: v1alpha1.ReasonClusterAmbiguous,
			wantMessage: "there are several BrokerClusters in this namespace (a, b, c, d, e, 2 more); create this Topic anew with clusterRef set to one of them",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var clusters []v1alpha1.BrokerCluster
			for _, c := range tc.clusters {
				clusters = append(clusters, v1alpha1.BrokerCluster{ObjectMeta: metav1.ObjectMeta{Name: c}})
			}
			got, problem := Resolve("Topic", tc.ref, tc.sofar, clusters)
			switch {
			case got != nil && (got.Name != tc.want || problem != nil):
				t.Errorf("Resolve = %s, %v; want %q", got.Name, problem, tc.want)
			case got == nil && (tc.want != "" || problem == nil || problem.Reason != tc.wantReason || problem.Message != tc.wantMessage):
				t.Errorf("Resolve = nil, %+v; want %q, %s, %s", problem, tc.want, tc.wantReason, tc.wantMessage)
			}
		})
	}
}
