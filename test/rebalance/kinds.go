// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// kind is a client and the protocol that it speaks.
type kind struct {
	// name is the members' first argument.
	name string
	// library is how the pods run it: go, python or java.
	library string
	// title is the page's.
	title string
	// told says that it hears of a change at once, since its heartbeats are held or its protocol is KIP-848's: its targets are absolute. Otherwise they count from its
	// own heartbeat interval.
	told bool
	// heartbeat is its default heartbeat interval.
	heartbeat time.Duration
}

var kinds = []kind{
	{name: "franz-eager", library: "go", title: "franz-go, eager (range)", heartbeat: 3 * time.Second},
	{name: "franz-cooperative", library: "go", title: "franz-go, cooperative-sticky", heartbeat: 3 * time.Second},
	{name: "franz-848", library: "go", title: "franz-go, KIP-848", told: true},
	{name: "librdkafka-eager", library: "python", title: "librdkafka, eager (range)", told: true, heartbeat: 3 * time.Second},
	{name: "librdkafka-cooperative", library: "python", title: "librdkafka, cooperative-sticky", told: true, heartbeat: 3 * time.Second},
	{name: "librdkafka-848", library: "python", title: "librdkafka, KIP-848", told: true},
	{name: "java-eager", library: "java", title: "Java, eager (range)", told: true, heartbeat: 3 * time.Second},
	{name: "java-cooperative", library: "java", title: "Java, cooperative-sticky", told: true, heartbeat: 3 * time.Second},
	{name: "java-848", library: "java", title: "Java, KIP-848", told: true},
	{name: "sarama-eager", library: "go", title: "sarama, eager (range)", heartbeat: 3 * time.Second},
}

// consumer says whether the kind speaks KIP-848's protocol.
func (k *kind) consumer() bool { return strings.HasSuffix(k.name, "-848") }

// command is what a pod runs before the arguments.
func (k *kind) command(o *options) string {
	switch k.library {
	case "python":
		return fmt.Sprintf("[%q, %q]", o.python, filepath.Join(o.source, "clients", "librdkafka", "member.py"))
	case "java":
		return fmt.Sprintf("[%q, -Xmx96m, -XX:+UseSerialGC, -XX:TieredStopAtLevel=1, -cp, %q, Member]", o.java, o.classes+":"+o.kafka+"/*")
	default:
		return "[/member]"
	}
}
