// SPDX-License-Identifier: Apache-2.0

package redis

import "github.com/redis/rueidis"

// Every script gets the same keys (see keys.all), the cluster's id as ARGV[1] and the prefix of all keys as ARGV[2]. It answers with a status and
// what belongs to that. The version and the members' one are times in microseconds, made to grow: a replica that takes over without the last changes cannot
// come to the same ones by others. A registration's key, broker:ID, is not among the keys, for nobody knows beforehand which there are; it lies in the same slot.
const prelude = `
local id, counters, brokers, controller, topics, leaders, deleted, partitioner = unpack(KEYS)
local function registration(node) return ARGV[2] .. 'broker:' .. node end
local function counter(name) return redis.call('HGET', counters, name) or '0' end
local function grow(name)
  local time, last = redis.call('TIME'), tonumber(counter(name))
  local next = time[1] * 1000000 + time[2]
  if last and last >= next and last < 9e15 then next = last + 1 end
  next = string.format('%.0f', next)
  redis.call('HSET', counters, name, next)
  return next
end
local function publish() redis.call('PUBLISH', ARGV[2] .. 'changed', grow('version')) end
`

// guard lets a script change nothing in a Redis that holds another cluster, or none.
const guard = prelude + `
local found = redis.call('GET', id)
if found ~= ARGV[1] then return {'cluster', string.sub(found or '', 1, 64)} end
`

// Statuses that scripts answer with.
const (
	statusOK       = "ok"
	statusCluster  = "cluster"  // the Redis holds another cluster, whose id follows, or none
	statusTaken    = "taken"    // another process is registered under the broker's id: the id, its registration, the milliseconds that it lasts
	statusConflict = "conflict" // what was to be changed is no longer as it was read
	statusDeposed  = "deposed"  // another broker is the controller
	statusDamaged  = "damaged"  // what is stored cannot be
	statusSize     = "size"     // a key holds too much: its name, how many bytes there are in all
)

// join makes the cluster's id, ARGV[1] being the proposal, and registers: node id or 0 for a free one, registration, lease in milliseconds.
// ok: the cluster's id, the node id.
//
//nolint:dupword // Lua says end for each block.
var join = rueidis.NewLuaScript(prelude + `
redis.call('SET', id, ARGV[1], 'NX')
local node = ARGV[3]
if node == '0' then
  node = 1
  while redis.call('EXISTS', registration(node)) == 1 do node = node + 1 end
end
local other = redis.call('GET', registration(node))
if other then return {'taken', node, other, redis.call('PTTL', registration(node))} end
redis.call('SET', registration(node), ARGV[4], 'PX', ARGV[5])
redis.call('HSETNX', brokers, node, '')
grow('members')
publish()
return {'ok', redis.call('GET', id), node}
`)

// renew renews a broker's registration, or registers it again, and the controller's lease if it is the controller's or nobody's; and it reads: node id,
// registration, lease in milliseconds, instance, the version that is known, the largest number of bytes.
// ok: 1 where the broker was not registered; the time; version, members, floor; the controller: broker, instance, epoch and the milliseconds that it lasts; the
// brokers: id, instance taken in, registration and the milliseconds that it lasts, each; and, where the version is another than the known one, the
// hashes topics, leaders and deleted.
//
//nolint:dupword // Lua says end for each block.
var renew = rueidis.NewLuaScript(guard + `
local node, instance, lease = ARGV[3], ARGV[6], ARGV[5]
local mine, fresh = redis.call('GET', registration(node)), 0
if mine and mine ~= ARGV[4] then return {'taken', node, mine, redis.call('PTTL', registration(node))} end
if mine then
  redis.call('PEXPIRE', registration(node), lease)
else
  fresh = 1
  redis.call('SET', registration(node), ARGV[4], 'PX', lease)
  redis.call('HSETNX', brokers, node, '')
  grow('members')
  publish()
end
local holder = redis.call('HGET', controller, 'instance')
if not holder then
  redis.call('HSET', controller, 'broker', node, 'instance', instance, 'epoch', redis.call('HINCRBY', counters, 'controller', 1))
end
if not holder or holder == instance then redis.call('PEXPIRE', controller, lease) end
local time = redis.call('TIME')
local answer = {'ok', fresh, string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000)), counter('version'), counter('members'), counter('floor')}
answer[7] = {redis.call('HGET', controller, 'broker'), redis.call('HGET', controller, 'instance'), redis.call('HGET', controller, 'epoch'), redis.call('PTTL', controller)}
local size = 0
local function count(flat) for i = 1, #flat do size = size + #flat[i] end end
local known, list = redis.call('HGETALL', brokers), {}
for i = 1, #known, 2 do
  list[#list + 1] = known[i]
  list[#list + 1] = known[i + 1]
  list[#list + 1] = redis.call('GET', registration(known[i])) or ''
  count({known[i], known[i + 1], list[#list]})
  list[#list + 1] = redis.call('PTTL', registration(known[i]))
end
answer[8] = list
if size > tonumber(ARGV[8]) then return {'size', brokers, size} end
if answer[4] == ARGV[7] then return answer end
for n, key in ipairs({topics, leaders, deleted}) do
  answer[8 + n] = redis.call('HGETALL', key)
  count(answer[8 + n])
  if size > tonumber(ARGV[8]) then return {'size', key, size} end
end
return answer
`)

// leave ends a broker's registration: node id, registration, instance.
var leave = rueidis.NewLuaScript(guard + `
if redis.call('GET', registration(ARGV[3])) ~= ARGV[4] then return {'taken'} end
redis.call('DEL', registration(ARGV[3]))
redis.call('HDEL', brokers, ARGV[3])
if redis.call('HGET', controller, 'instance') == ARGV[5] then redis.call('DEL', controller) end
grow('members')
publish()
return {'ok'}
`)

// assign writes what the controller decided: instance, its epoch, the members' version that it saw, which each assign makes grow, so that one that comes late,
// after another, does nothing; then four lists, each after its length: brokers taken in (id,
// instance), brokers gone (id), deleted topics (id, value), leaders (topic's name, its value in topics, its value in leaders). The leaders of a topic
// that has changed or gone meanwhile are left out.
var assign = rueidis.NewLuaScript(guard + `
if redis.call('HGET', controller, 'instance') ~= ARGV[3] or redis.call('HGET', controller, 'epoch') ~= ARGV[4] then return {'deposed'} end
if counter('members') ~= ARGV[5] then return {'conflict'} end
local at = 6
local function each(width, f)
  local n = tonumber(ARGV[at])
  for i = 1, n do f(at + 1 + (i - 1) * width) end
  at = at + 1 + n * width
end
each(2, function(i) redis.call('HSET', brokers, ARGV[i], ARGV[i + 1]) end)
each(1, function(i) redis.call('HDEL', brokers, ARGV[i]) end)
each(2, function(i) if redis.call('HEXISTS', deleted, ARGV[i]) == 1 then redis.call('HSET', deleted, ARGV[i], ARGV[i + 1]) end end)
each(3, function(i) if redis.call('HGET', topics, ARGV[i]) == ARGV[i + 1] then redis.call('HSET', leaders, ARGV[i], ARGV[i + 2]) end end)
grow('members')
publish()
return {'ok'}
`)

// raise makes leader epochs greater than those that brokers remember and Redis has lost: the floor; then topic, its value in leaders, and what that becomes, each.
//
//nolint:dupword // Lua says end for each block.
var raise = rueidis.NewLuaScript(guard + `
if tonumber(ARGV[3]) > (tonumber(counter('floor')) or 0) then redis.call('HSET', counters, 'floor', ARGV[3]) end
for i = 4, #ARGV, 3 do
  if redis.call('HGET', leaders, ARGV[i]) == ARGV[i + 1] then redis.call('HSET', leaders, ARGV[i], ARGV[i + 2]) end
end
grow('members')
publish()
return {'ok'}
`)

// look reads a topic: name, the largest number of bytes. ok: its value in topics, empty where there is none.
var look = rueidis.NewLuaScript(guard + `
local size = redis.call('HSTRLEN', topics, ARGV[3])
if size > tonumber(ARGV[4]) then return {'size', topics, size} end
return {'ok', redis.call('HGET', topics, ARGV[3]) or ''}
`)

// put makes or changes a topic: name, its value in topics before (empty: none), and after.
var put = rueidis.NewLuaScript(guard + `
if (redis.call('HGET', topics, ARGV[3]) or '') ~= ARGV[4] then return {'conflict'} end
redis.call('HSET', topics, ARGV[3], ARGV[5])
publish()
return {'ok'}
`)

// remove deletes a topic: name, its value in topics, its id, the value for deleted.
//
//nolint:dupword // Lua says end for each block.
var remove = rueidis.NewLuaScript(guard + `
if redis.call('HGET', topics, ARGV[3]) ~= ARGV[4] then return {'conflict'} end
local floor = tonumber(counter('floor')) or 0
local sound, led = pcall(cjson.decode, redis.call('HGET', leaders, ARGV[3]) or '{}')
if sound and type(led) == 'table' and type(led.epochs) == 'table' then
  for _, epoch in ipairs(led.epochs) do
    if type(epoch) == 'number' and epoch >= floor then floor = epoch + 1 end
  end
end
redis.call('HSET', counters, 'floor', string.format('%d', floor))
redis.call('HDEL', topics, ARGV[3])
redis.call('HDEL', leaders, ARGV[3])
redis.call('HDEL', partitioner, ARGV[3])
redis.call('HSET', deleted, ARGV[5], ARGV[6])
publish()
return {'ok'}
`)

// purged takes deleted topics off the list: their ids.
var purged = rueidis.NewLuaScript(guard + `
local n = 0
for i = 3, #ARGV do n = n + redis.call('HDEL', deleted, ARGV[i]) end
if n > 0 then publish() end
return {'ok'}
`)

// turn takes the next partition in turn: topic. ok: the partition.
var turn = rueidis.NewLuaScript(guard + `
local raw = redis.call('HGET', topics, ARGV[3])
if not raw then return {'conflict'} end
local sound, topic = pcall(cjson.decode, raw)
local n = sound and type(topic) == 'table' and tonumber(topic.partitions)
if not n or n < 1 then return {'damaged'} end
return {'ok', (redis.call('HINCRBY', partitioner, ARGV[3], 1) - 1) % n}
`)
