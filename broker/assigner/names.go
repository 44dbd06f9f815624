// SPDX-License-Identifier: Apache-2.0

package assigner

import (
	"fmt"
	"slices"
	"strings"
)

// assigners holds every assigner by its name; each is stateless, so that one value serves all callers.
var assigners = map[string]Assigner{
	ConsistentHash{}.Name(): ConsistentHash{},
	Range{}.Name():          Range{},
	RoundRobin{}.Name():     RoundRobin{},
	Sticky{}.Name():         Sticky{},
}

// Names returns the names of the assigners, sorted.
func Names() []string {
	names := make([]string, 0, len(assigners))
	for name := range assigners {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// ByName returns the assigner of that name, as in ConsumerGroup.spec.assigner. The error names those that exist.
func ByName(name string) (Assigner, error) {
	a, ok := assigners[name]
	if !ok {
		return nil, fmt.Errorf("unknown assigner %q: choose one of %s", name, strings.Join(Names(), ", "))
	}
	return a, nil
}
