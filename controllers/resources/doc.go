// SPDX-License-Identifier: Apache-2.0

// Package resources builds the objects that the operator makes for a BrokerCluster. Every builder is a pure function of its
// arguments: no client, clock or randomness. What each one builds is beside it in testdata, as YAML.
package resources
