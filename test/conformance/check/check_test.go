// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"testing"
)

func TestSame(t *testing.T) {
	change := func(f func(r []Record) []Record) func() []Record { return func() []Record { return f(Data()) } }
	tests := map[string]struct {
		got  func() []Record
		want bool
	}{
		"what was written":                  {got: Data, want: true},
		"partitions in another order":       {got: change(func(r []Record) []Record { return append(r[1:], r[0]) }), want: true},
		"one too few":                       {got: change(func(r []Record) []Record { return r[1:] })},
		"one twice":                         {got: change(func(r []Record) []Record { r[0] = r[3]; return r })},
		"an empty key where there was none": {got: change(func(r []Record) []Record { r[4].Key = []byte{}; return r })},
		"no value where there was one":      {got: change(func(r []Record) []Record { r[0].Value = nil; return r })},
		"another byte":                      {got: change(func(r []Record) []Record { r[0].Value[7]++; return r })},
		"headers in another order": {got: change(func(r []Record) []Record {
			r[0].Headers[0], r[0].Headers[1] = r[0].Headers[1], r[0].Headers[0]
			return r
		})},
		"no headers": {got: change(func(r []Record) []Record { r[0].Headers = nil; return r })},
		"an offset":  {got: change(func(r []Record) []Record { r[299].Offset++; return r })},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if err := Same(Data(), tc.got()); (err == nil) != tc.want {
				t.Errorf("Same = %v, want same %t", err, tc.want)
			}
		})
	}
}

func TestLedger(t *testing.T) {
	tests := map[string]struct {
		do   func(l *Ledger)
		want bool
	}{
		"each read once":                      {do: func(l *Ledger) { l.Read(0, 0); l.Read(0, 1); l.Committed(0, 2) }, want: true},
		"one read again before it is covered": {do: func(l *Ledger) { l.Read(0, 0); l.Committed(0, 1); l.Read(0, 1); l.Read(0, 1) }, want: true},
		"one read again after it was covered": {do: func(l *Ledger) { l.Read(0, 0); l.Read(0, 1); l.Committed(0, 2); l.Read(0, 1) }},
		"another partition's commit":          {do: func(l *Ledger) { l.Read(0, 0); l.Committed(1, 5); l.Read(0, 1) }, want: true},
		"one lost":                            {do: func(l *Ledger) { l.Read(0, 0) }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			l := NewLedger()
			tc.do(l)
			if err := l.Check(2); (err == nil) != tc.want {
				t.Errorf("Check = %v, want none %t", err, tc.want)
			}
		})
	}
}

func TestARefusalIsAnErrorThatIsNotTheEndOfTheTime(t *testing.T) {
	for err, want := range map[error]bool{nil: false, context.DeadlineExceeded: false, errors.New("TRANSACTIONAL_ID_AUTHORIZATION_FAILED"): true} {
		if got := Refused(err); (got == nil) != want {
			t.Errorf("Refused(%v) = %v, want none %t", err, got, want)
		}
	}
}

func TestEveryCheckHasANameOfItsOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, names := range [][]string{Checks, Groups, Tools, Traps, {Advertised}} {
		for _, name := range names {
			if seen[name] {
				t.Errorf("%q is there twice", name)
			}
			seen[name] = true
		}
	}
}
