// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the API group and version of every resource in this package.
	GroupVersion = schema.GroupVersion{Group: "ringmaster.dev", Version: "v1alpha1"}

	// SchemeBuilder collects the functions that add this package's types to a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds this package's types to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&BrokerCluster{}, &BrokerClusterList{},
		&Topic{}, &TopicList{},
		&ConsumerGroup{}, &ConsumerGroupList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
