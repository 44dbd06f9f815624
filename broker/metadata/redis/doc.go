// SPDX-License-Identifier: Apache-2.0

// Package redis is the source of metadata of brokers that are one cluster because they share a Redis or Valkey.
//
// # Keys
//
// All keys begin with PREFIX:{cluster}: and so lie in one slot of a Redis Cluster. Numbers are decimal, times are milliseconds since 1970 by Redis' clock (that of
// a registration by its broker's), instances are 16 random bytes in base64, drawn by each broker process when it starts.
//
//	id           string  the cluster's id, drawn by the first broker
//	counters     hash    version: grows with every change; members: grows when a broker comes or goes, or leaders change; both are microseconds since 1970, or
//	                     more; controller: the controller's last epoch;
//	                     floor: the first leader epoch of a new partition, beyond that of every deleted topic
//	broker:ID    string  a broker's registration, which expires with its lease: {"host":"h","port":9092,"instance":"…","since":1764560000000}
//	brokers      hash    broker id: the instance that the controller has taken in; empty before it has
//	controller   hash    who shares partitions out: broker, instance, epoch; it expires with the lease
//	topics       hash    name: {"id":"…","partitions":12,"config":{…}}, as in the file of one broker on its own
//	leaders      hash    name: {"leaders":[1,2],"epochs":[0,3],"since":[1764560000000,1764560000000]}, by partition
//	deleted      hash    topic id: {"name":"orders","instance":"…"}: deleted topics, and which broker process removes their records
//	partitioner  hash    name: how many records were given a partition in turn
//
// Every change of more than one key is one script; scripts publish the new version on the channel PREFIX:{cluster}:changed.
//
// # Leases
//
// A broker renews its registration every third of its lease. It believes that it leads partitions until a lease after it began its last successful
// renewal, by its own clock: never longer than its registration lasts. A partition's leader is a broker id and counts only while the process that the
// controller took in under that id is registered; a process that comes later under the same id gets a new leader epoch.
//
// One of the brokers, the controller, gives partitions to brokers. What it writes is refused once another broker has become the controller, and once a
// broker has come or gone, or leaders have changed, that it had not seen.
package redis
