// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"crypto/sha1" //nolint:gosec // it is how Redis names scripts
	_ "embed"     // the scripts
	"encoding/hex"
	"errors"

	"github.com/redis/rueidis"
)

// script is a server-side function. It is called by its hash, and sent whole where the server does not know that: after a start, a failover or SCRIPT FLUSH.
type script struct {
	body, hash string
	// reads says that it changes nothing.
	reads bool
}

func newScript(body string) *script {
	sum := sha1.Sum([]byte(body)) //nolint:gosec // as above
	return &script{body: body, hash: hex.EncodeToString(sum[:])}
}

func newReadScript(body string) *script {
	s := newScript(body)
	s.reads = true
	return s
}

// command calls the script, by its hash or whole.
func (s *script) command(c rueidis.CoreClient, whole bool, keys, args []string) rueidis.Completed {
	switch n := int64(len(keys)); {
	case s.reads && whole:
		return c.B().EvalRo().Script(s.body).Numkeys(n).Key(keys...).Arg(args...).Build()
	case s.reads:
		return c.B().EvalshaRo().Sha1(s.hash).Numkeys(n).Key(keys...).Arg(args...).Build()
	case whole:
		return c.B().Eval().Script(s.body).Numkeys(n).Key(keys...).Arg(args...).Build()
	default:
		return c.B().Evalsha().Sha1(s.hash).Numkeys(n).Key(keys...).Arg(args...).Build()
	}
}

// run calls the script.
func (s *script) run(ctx context.Context, c rueidis.CoreClient, keys, args []string) rueidis.RedisResult {
	r := c.Do(ctx, s.command(c, false, keys, args))
	if isUnknownScript(r.Error()) {
		r = c.Do(ctx, s.command(c, true, keys, args))
	}
	return r
}

func isUnknownScript(err error) bool {
	var e *rueidis.RedisError
	return errors.As(err, &e) && e.IsNoScript()
}

// What the scripts answer with, before what each has to say.
const (
	replyOK = "OK"
	// replyGone says that the log is not there: its partition was deleted.
	replyGone = "GONE"
	// replyFenced says that another has opened the log since, and is followed by the leader epoch in which.
	replyFenced = "FENCED"
	// replyEnd says that the log does not end where it was believed to, and is followed by where it ends.
	replyEnd = "END"
	// replyDamaged says that the log is there without its meta.
	replyDamaged = "DAMAGED"
	// replyMore says that too much was appended meanwhile for the script to go over: that is to be done first.
	replyMore = "MORE"
)

// mayExceed begins scripts that may write where maxmemory is reached, since they add next to nothing, or make room.
const mayExceed = "#!lua flags=allow-oom\n"

// The scripts' own comments say what they do, and with which keys and arguments.
//
// An append is a transaction: MULTI, append.lua, an XADD for each batch, RENAME, EXEC. The script decides whether it is to be, and if so gives the log the name to which the
// batches are added; else there is no such log, and NOMKSTREAM makes none. So the batches do not pass through Lua, which would take about half as long again.
var (
	//go:embed lua/owner.lua
	ifOwner string
	//go:embed lua/open.lua
	openLua string
	//go:embed lua/append.lua
	appendLua string
	//go:embed lua/trim.lua
	trimLua string
	//go:embed lua/forget.lua
	forgetLua string
	//go:embed lua/delete.lua
	deleteLua string
	//go:embed lua/bounded.lua
	boundedLua string
	//go:embed lua/clean.lua
	cleanLua string
	//go:embed lua/swap.lua
	swapLua string
	//go:embed lua/pass.lua
	passLua string
	//go:embed lua/touch.lua
	touchLua string

	openScript    = newScript(mayExceed + openLua)
	appendScript  = newScript(mayExceed + ifOwner + appendLua)
	trimScript    = newScript(mayExceed + ifOwner + trimLua)
	forgetScript  = newScript(mayExceed + ifOwner + forgetLua)
	deleteScript  = newScript(mayExceed + deleteLua)
	boundedScript = newReadScript(boundedLua)
	cleanScript   = newScript(ifOwner + cleanLua)
	swapScript    = newScript(ifOwner + swapLua)
	passScript    = newScript(mayExceed + ifOwner + passLua)
	touchScript   = newScript(mayExceed + ifOwner + touchLua)
)
