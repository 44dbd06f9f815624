// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the three resources of Ringmaster, group ringmaster.dev: BrokerCluster, Topic and ConsumerGroup.
//
// What can be refused at admission is refused there, by schema and CEL, with a message that says what to do.
//
// +kubebuilder:object:generate=true
// +groupName=ringmaster.dev
package v1alpha1
