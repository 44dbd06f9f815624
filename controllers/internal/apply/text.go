// SPDX-License-Identifier: Apache-2.0

package apply

import "unicode/utf8"

// What the API server takes at most, in bytes.
const (
	maxMessage = 32768 // a condition's message
	maxNote    = 1024  // an event's note
)

// Message cuts a text to what fits in a condition's message.
func Message(text string) string { return cut(text, maxMessage) }

// Note cuts a text to what fits in an event's note.
func Note(text string) string { return cut(text, maxNote) }

// cut cuts a text to limit bytes, between characters, and shows that it did.
func cut(text string, limit int) string {
	const mark = "..."
	if len(text) <= limit {
		return text
	}
	end := limit - len(mark)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}
