// SPDX-License-Identifier: Apache-2.0
// Checks a broker with kafkajs. The Go package check says what a program prints, and holds the same data.
'use strict'

const { setTimeout: sleep } = require('node:timers/promises')
const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, PartitionAssigners, logLevel } = require('kafkajs')
const snappy = require('kafkajs-snappy')
const lz4 = require('lz4js')
const { ZstdCodec } = require('zstd-codec')

const PARTITIONS = 3
const DATA_RECORDS = 300
const ORDER_RECORDS = 2000
const LARGE_BYTES = 1000000
const GROUP_PARTITIONS = 6
const GROUP_RECORDS = 600
const MIDDLE = 1234
const MORE = 30
const LIMIT = 60000
const EPOCH = 1700000000000

if (process.argv.length !== 4 && process.argv.length !== 5) {
  console.error('usage: main.js BOOTSTRAP PREFIX')
  process.exit(2)
}
const [bootstrap, prefix] = process.argv.slice(2)
const name = of => `${prefix}-${of}`
const kafka = new Kafka({ clientId: 'conformance', brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 3 } })
const admin = kafka.admin()

// kafkajs has gzip alone, and takes the other codecs from outside.
const frames = (compress, decompress) => () => ({
  compress: async encoder => Buffer.from(await compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(await decompress(buffer)),
})
CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = frames(lz4.compress, lz4.decompress)
const zstd = new Promise(resolve => ZstdCodec.run(resolve)).then(codec => new codec.Streaming())
CompressionCodecs[CompressionTypes.ZSTD] = frames(async b => (await zstd).compress(b), async b => (await zstd).decompress(b))

// What is written and read.

const range = n => [...Array(n).keys()]

/** Records with every kind of content. */
const data = () =>
  range(DATA_RECORDS).map(i => {
    const key = i % 5 === 4 ? null : Buffer.from(`key-${i}`)
    const value = i % 7 === 6 && key ? null : Buffer.from(range(100 + (i % 50)).map(j => (i * 31 + j * 7) & 255))
    const headers = i % 3 === 0 ? { n: Buffer.from(`${i}`), empty: Buffer.alloc(0) } : {}
    return { partition: i % PARTITIONS, offset: Math.floor(i / PARTITIONS), key, value, headers }
  })

/** Moves the first records of data behind all of data. */
const after = records => records.map(r => ({ ...r, offset: r.offset + DATA_RECORDS / PARTITIONS }))

/** Records of one partition, each a second younger than the one before. */
const ordered = () =>
  range(ORDER_RECORDS).map(i => ({
    partition: 0, offset: i, key: Buffer.from(`${i}`), value: Buffer.from(`value-${i}`), headers: {}, timestamp: `${EPOCH + 1000 * i}`,
  }))

/** Records for the partitions of the rebalanced group. */
const spread = () =>
  range(GROUP_RECORDS).map(i => ({
    partition: i % GROUP_PARTITIONS, offset: Math.floor(i / GROUP_PARTITIONS), key: null, value: Buffer.from(`value-${i}`), headers: {},
  }))

const large = () => [{ partition: 0, offset: 0, key: null, value: Buffer.alloc(LARGE_BYTES, 'ring'), headers: {} }]

function expect(condition, message) {
  if (!condition) throw new Error(message)
}

const text = r =>
  JSON.stringify([
    r.partition, Number(r.offset), r.key && r.key.toString('hex'), r.value && r.value.toString('hex'),
    Object.entries(r.headers || {}).map(([k, v]) => [k, Buffer.from(v).toString('hex')]),
  ])

/** Fails unless what was read is what was written. */
function same(want, got) {
  const order = (a, b) => a.partition - b.partition || Number(a.offset) - Number(b.offset)
  want = [...want].sort(order)
  got = [...got].sort(order)
  expect(got.length === want.length, `${got.length} records, want ${want.length}`)
  want.forEach((w, i) => {
    expect(text(w) === text(got[i]), `read ${text(got[i]).slice(0, 300)}, want ${text(w).slice(0, 300)}`)
    expect(!w.timestamp || w.timestamp === got[i].timestamp, `offset ${w.offset}: time ${got[i].timestamp}, want ${w.timestamp}`)
  })
}

/** Calls condition until it no longer fails. */
async function wait(condition, limit = LIMIT / 2) {
  for (const end = Date.now() + limit; ; await sleep(50)) {
    try {
      return await condition()
    } catch (e) {
      if (Date.now() > end) throw e
    }
  }
}

async function fails(promise) {
  try {
    await promise
  } catch (e) {
    return e
  }
  return null
}

// What the checks are made of.

const topic = (topicName, numPartitions) => admin.createTopics({ topics: [{ topic: topicName, numPartitions, replicationFactor: 1 }], waitForLeaders: true })

/** Writes records and waits for their acknowledgements. */
async function send(topicName, records, { producer = {}, ...options } = {}) {
  const p = kafka.producer({ createPartitioner: () => ({ message }) => message.partition, ...producer })
  await p.connect()
  try {
    await p.send({ topic: topicName, acks: -1, ...options, messages: records.map(({ offset, ...r }) => r) })
  } finally {
    await p.disconnect()
  }
}

const record = (partition, m) => ({ partition, offset: Number(m.offset), key: m.key, value: m.value, headers: m.headers, timestamp: m.timestamp })

/** Reads as a member of a group until it has the records; seek is where to begin, by partition. */
async function read(groupId, topicName, count, { seek = {}, commit = false } = {}) {
  const consumer = kafka.consumer({ groupId, heartbeatInterval: 300, maxWaitTimeInMs: 100 })
  await consumer.connect()
  try {
    await consumer.subscribe({ topic: topicName, fromBeginning: true })
    const records = []
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        if (Number(message.offset) >= (seek[partition] || 0)) records.push(record(partition, message))
      },
    })
    for (const [partition, offset] of Object.entries(seek)) consumer.seek({ topic: topicName, partition: Number(partition), offset: `${offset}` })
    await wait(() => expect(records.length >= count, `${records.length} of ${count} records`))
    if (commit) {
      const next = {}
      for (const r of records) next[r.partition] = Math.max(next[r.partition] || 0, r.offset + 1)
      await consumer.commitOffsets(Object.entries(next).map(([p, o]) => ({ topic: topicName, partition: Number(p), offset: `${o}` })))
    }
    return records
  } finally {
    await consumer.disconnect()
  }
}

const readAll = (topicName, count, seek) => read(`${topicName}-${Math.random()}`, topicName, count, { seek })

const roundTrip = (of, options) => async () => {
  await topic(name(of), PARTITIONS)
  await send(name(of), data(), options)
  same(data(), await readAll(name(of), DATA_RECORDS))
}

// The checks.

async function rebalance() {
  const group = name('rebalance')
  await topic(group, GROUP_PARTITIONS)
  await send(group, spread())
  const seen = new Set()
  const committed = {}
  const owned = {}
  let wrong = null
  const member = async id => {
    const consumer = kafka.consumer({ groupId: group, heartbeatInterval: 300, sessionTimeout: 10000, rebalanceTimeout: 10000, maxWaitTimeInMs: 100 })
    consumer.on(consumer.events.GROUP_JOIN, e => {
      owned[id] = (e.payload.memberAssignment[group] || []).length
    })
    await consumer.connect()
    await consumer.subscribe({ topic: group, fromBeginning: true })
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        const offset = Number(message.offset)
        if (offset < (committed[partition] || 0)) wrong = wrong || `partition ${partition}, offset ${offset} was read after ${committed[partition]} was committed`
        seen.add(`${partition}/${offset}`)
        await consumer.commitOffsets([{ topic: group, partition, offset: `${offset + 1}` }])
        committed[partition] = Math.max(committed[partition] || 0, offset + 1)
      },
    })
    return consumer
  }
  const check = count => {
    expect(!wrong, wrong)
    expect(seen.size === count, `${seen.size} records were read, want ${count}`)
  }
  const [a, b] = await Promise.all([member('a'), member('b')])
  try {
    await wait(() => {
      expect(owned.a === GROUP_PARTITIONS / 2 && owned.b === GROUP_PARTITIONS / 2, `the members have ${JSON.stringify(owned)} partitions`)
      check(GROUP_RECORDS)
    })
    await send(group, spread())
  } finally {
    await b.disconnect()
  }
  try {
    await wait(() => check(2 * GROUP_RECORDS))
  } finally {
    await a.disconnect()
  }
  check(2 * GROUP_RECORDS)
}

async function partitions(count) {
  const { topics } = await admin.fetchTopicMetadata({ topics: [name('topic')] })
  const got = topics[0].partitions
  expect(got.length === count && got.every(p => p.leader >= 1), `${JSON.stringify(got)}, want ${count} partitions, each with a leader`)
}

async function retention(value) {
  const { resources } = await admin.describeConfigs({
    includeSynonyms: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: name('topic'), configNames: ['retention.ms'] }],
  })
  const got = resources[0].configEntries[0]
  expect(got && got.configValue === value, `${JSON.stringify(got)}, want ${value}`)
}

const listed = async group => (await admin.listGroups()).groups.some(g => g.groupId === group)

const sum = (list, of) => list.reduce((total, x) => total + Number(x[of]), 0)

const checks = {
  'produce acks=0': roundTrip('acks-0', { acks: 0 }),
  'produce acks=1': roundTrip('acks-1', { acks: 1 }),
  'produce acks=all': roundTrip('acks-all', { acks: -1 }),
  'compression none': roundTrip('none', { compression: CompressionTypes.None }),
  'compression gzip': roundTrip('gzip', { compression: CompressionTypes.GZIP }),
  'compression snappy': roundTrip('snappy', { compression: CompressionTypes.Snappy }),
  'compression lz4': roundTrip('lz4', { compression: CompressionTypes.LZ4 }),
  'compression zstd': roundTrip('zstd', { compression: CompressionTypes.ZSTD }),
  'order and offsets': async () => {
    await topic(name('order'), 1)
    await send(name('order'), ordered())
    const got = await readAll(name('order'), ORDER_RECORDS)
    expect(got.every((r, i) => r.offset === i), 'they were not read in order')
    same(ordered(), got)
  },
  'seek by offset': async () => same(ordered().slice(MIDDLE), await readAll(name('order'), ORDER_RECORDS - MIDDLE, { 0: MIDDLE })),
  'seek by time': async () => {
    const [{ offset }] = await admin.fetchTopicOffsetsByTimestamp(name('order'), EPOCH + MIDDLE * 1000 - 1)
    expect(offset === `${MIDDLE}`, `offset ${offset}, want ${MIDDLE}`)
  },
  'large record': async () => {
    await topic(name('large'), 1)
    await send(name('large'), large())
    same(large(), await readAll(name('large'), 1))
  },
  'idempotent producer': roundTrip('idempotent', { producer: { idempotent: true, maxInFlightRequests: 1 } }),
  'transactional id refused': async () => {
    const producer = kafka.producer({ transactionalId: name('txn'), idempotent: true, maxInFlightRequests: 1 })
    await producer.connect().catch(() => {})
    const error = await Promise.race([fails(producer.transaction()), sleep(20000, 'slow')])
    await producer.disconnect()
    expect(error, 'a transactional id was accepted')
    expect(error !== 'slow', 'no refusal after 20 s')
  },
  'auto-created topic': async () => {
    const want = [{ partition: 0, offset: 0, key: Buffer.from('k'), value: Buffer.from('v'), headers: {} }]
    await wait(() => send(name('auto'), want, { producer: { allowAutoTopicCreation: true } }))
    same(want, await readAll(name('auto'), 1))
  },
  'unknown topic': async () => {
    const error = await fails(admin.fetchTopicMetadata({ topics: [name('nowhere')] }))
    expect(error && /UNKNOWN_TOPIC_OR_PARTITION|does not host this topic/.test(`${error.type} ${error.message}`), `${error}`)
  },
  'group never seen': async () => {
    const got = await admin.fetchOffsets({ groupId: name('never'), topics: [name('order')] })
    expect(got[0].partitions[0].offset === '-1', `${JSON.stringify(got)}, want -1`)
  },
  'group commits': async () => {
    const group = name('commit')
    await topic(group, PARTITIONS)
    await send(group, data())
    same(data(), await read(group, group, DATA_RECORDS, { commit: true }))
    await send(group, data().slice(0, MORE))
    same(after(data().slice(0, MORE)), await read(group, group, MORE, { commit: true }))
  },
  'group rebalance': rebalance,
  'describe group': async () => {
    const { groups } = await admin.describeGroups([name('commit')])
    expect(groups[0].state === 'Empty' && groups[0].protocolType === 'consumer', JSON.stringify(groups))
    expect(await listed(name('commit')), 'it is not listed')
  },
  lag: async () => {
    const group = name('commit')
    await send(group, data().slice(0, MORE))
    const [{ partitions: committed }] = await admin.fetchOffsets({ groupId: group, topics: [group] })
    const lag = sum(await admin.fetchTopicOffsets(group), 'high') - sum(committed, 'offset')
    expect(lag === MORE, `lag ${lag}, want ${MORE}`)
  },
  'delete group': async () => {
    await admin.deleteGroups([name('commit')])
    expect(!(await listed(name('commit'))), 'it is still listed')
  },
  'create topic': async () => expect(await topic(name('topic'), 2), 'it was not created'),
  'create topic again': async () => expect((await topic(name('topic'), 2)) === false, 'the topic was created a second time'),
  'describe topic': () => wait(() => partitions(2)),
  'add partitions': async () => {
    await admin.createPartitions({ topicPartitions: [{ topic: name('topic'), count: 5 }] })
    await wait(() => partitions(5))
  },
  'describe configs': () => retention('604800000'),
  'alter configs': async () => {
    const configEntries = [{ name: 'retention.ms', value: '3600000' }]
    await admin.alterConfigs({ validateOnly: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: name('topic'), configEntries }] })
    await wait(() => retention('3600000'))
  },
  'delete records': async () => {
    await admin.deleteTopicRecords({ topic: name('order'), partitions: [{ partition: 0, offset: `${MIDDLE}` }] })
    const [{ low }] = await admin.fetchTopicOffsets(name('order'))
    expect(low === `${MIDDLE}`, `the first offset is ${low}, want ${MIDDLE}`)
  },
  'delete topic': async () => {
    await admin.deleteTopics({ topics: [name('topic')] })
    await wait(async () => expect(!(await admin.listTopics()).includes(name('topic')), 'it is still listed'))
  },
}

/** Prints an event of a member; the Go package member says what there is. */
const show = (event, fields) => console.log(JSON.stringify({ event, time: Math.round((performance.timeOrigin + performance.now()) * 1000), ...fields }))

/** Is a member of a group until standard input ends. */
async function beMember(asked) {
  const times = { sessionTimeout: asked.session_ms, rebalanceTimeout: 30000, heartbeatInterval: asked.heartbeat_ms, maxWaitTimeInMs: 200, metadataMaxAge: 1000 }
  const own = asked.client_id ? new Kafka({ clientId: asked.client_id, brokers: [bootstrap], logLevel: logLevel.NOTHING }) : kafka
  const consumer = own.consumer({ groupId: asked.group, partitionAssigners: [PartitionAssigners.roundRobin], ...(asked.session_ms ? times : {}) })
  let member = ''
  let owned = []
  const gone = () => {
    show('revoked', { partitions: owned })
    owned = []
  }
  consumer.on(consumer.events.REBALANCING, gone)
  consumer.on(consumer.events.GROUP_JOIN, e => {
    if (owned.length) gone()
    member = e.payload.memberId
    owned = Object.entries(e.payload.memberAssignment).flatMap(([topicName, ps]) => ps.map(partition => ({ topic: topicName, partition })))
    show('assigned', { partitions: owned })
  })
  consumer.on(consumer.events.CRASH, e => show('error', { error: `${e.payload.error}` }))
  await consumer.connect()
  await consumer.subscribe({ topics: asked.topics, fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: true,
    eachBatch: async ({ batch, isRunning, isStale }) => {
      if (!isRunning() || isStale()) return
      const place = { topic: batch.topic, partition: batch.partition }
      show('read', { ...place, first: Number(batch.firstOffset()), last: Number(batch.lastOffset()) })
      const next = Number(batch.lastOffset()) + 1
      await consumer.commitOffsets([{ ...place, offset: `${next}` }])
      show('committed', { ...place, next, member })
    },
  })
  let leaving = false
  const left = new Promise(resolve => process.stdin.on('end', resolve)).then(() => (leaving = true))
  process.stdin.resume()
  while (asked.commit_ms && !leaving) {
    await sleep(asked.commit_ms)
    if (!owned.length) continue
    const begin = performance.now()
    await consumer.commitOffsets([{ ...owned[0], offset: '0' }])
    show('timed', { micros: Math.round((performance.now() - begin) * 1000) })
  }
  await left
  await consumer.disconnect()
}

async function main() {
  if (process.argv.length === 5) {
    await beMember(JSON.parse(process.argv[4]))
    process.exit(0)
  }
  console.log(JSON.stringify({ client: 'kafkajs', version: require('kafkajs/package.json').version }))
  await admin.connect()
  for (const [check, run] of Object.entries(checks)) {
    const slow = sleep(LIMIT, new Error(`no end after ${LIMIT / 1000} s`), { ref: false })
    const error = await Promise.race([fails(run()), slow])
    console.log(JSON.stringify(error ? { check, ok: false, detail: `${error.name}: ${error.message}` } : { check, ok: true }))
  }
  console.log(JSON.stringify({ check: 'administer KIP-848 group', skip: 'the client has no KIP-848' }))
  await admin.disconnect()
  process.exit(0)
}

main().catch(e => {
  console.error(e)
  process.exit(1)
})
