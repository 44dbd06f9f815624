// SPDX-License-Identifier: Apache-2.0

package apply

import "reflect"

// covers tells whether live has every field of desired with the same value. Both are JSON values. What live has beyond that
// is the API server's defaults or someone else's, and counts for nothing. An empty map or list in desired asks for nothing.
//
// Items of a list are matched by name where all of them have names, as containers, ports and volumes do, so that an item
// that someone else added is left alone, as server-side apply leaves it; otherwise the lists must have the same items.
func covers(live, desired any) bool {
	switch desired := desired.(type) {
	case map[string]any:
		fields, ok := live.(map[string]any)
		if !ok {
			return len(desired) == 0
		}
		for key, want := range desired {
			if !covers(fields[key], want) {
				return false
			}
		}
		return true
	case []any:
		items, ok := live.([]any)
		if !ok {
			return len(desired) == 0
		}
		return coversItems(items, desired)
	default:
		return reflect.DeepEqual(live, desired)
	}
}

func coversItems(live, desired []any) bool {
	if named := byName(live); named != nil && byName(desired) != nil {
		for name, want := range byName(desired) {
			if !covers(named[name], want) {
				return false
			}
		}
		return true
	}
	if len(live) != len(desired) {
		return false
	}
	for i := range desired {
		if !covers(live[i], desired[i]) {
			return false
		}
	}
	return true
}

// byName returns the items by their name, nil if one of them has none or two have the same.
func byName(items []any) map[string]any {
	named := make(map[string]any, len(items))
	for _, item := range items {
		fields, ok := item.(map[string]any)
		if !ok {
			return nil
		}
		name, ok := fields["name"].(string)
		if !ok || named[name] != nil {
			return nil
		}
		named[name] = fields
	}
	return named
}
