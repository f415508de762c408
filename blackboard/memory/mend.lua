-- Derive anew what finds a record from the record, and log it if the log does not know of it.
-- KEYS: head, log, order, expiring, subjects, pending, record, content, subject, sources, same, contents
-- ARGV: id, version, content, subject, superseded_by
-- Returns: {"OK"} | {"MOVED"}
-- luacheck: read globals guard path chain said sources
--
-- A record without a subject that is superseded by what is not there is current again.
local head_k, log_k, order_k, expiring_k, subjects_k = unpack(KEYS, 1, 5)
local pending_k, record_k, content_k, subject_k, sources_k, same_k, contents_k = unpack(KEYS, 6, 12)
local id, version, content, subject, superseded_by = unpack(ARGV)
local now = guard.now()
local head, refused = path.head(head_k, '', now, '', '0')
local record = path.record(record_k, now)
if refused or not head.incarnation or not record or record.version ~= version or record.content ~= content
  or record.subject ~= subject or record.superseded_by ~= superseded_by then
  return {'MOVED'}
end
local listed = redis.call('ZSCORE', order_k, id)
local trimmed = tonumber(redis.call('HGET', head_k, 'trimmed') or '0')
local logged = tonumber(record.seq) <= trimmed or #redis.call('XRANGE', log_k, record.seq .. '-0', record.seq .. '-0') == 1

if not listed or not logged then
  record.seq = path.log(head, log_k, 'put', id, version)
  redis.call('HSET', record_k, 'seq', record.seq)
end
if not listed then
  redis.call('ZADD', order_k, record.seq, id)
  head.count = head.count + 1
end
if path.vid(head, record) ~= '' then
  redis.call('SREM', pending_k, id)
end
if subject ~= '' then
  redis.call('ZADD', subject_k, record.valid_from, id)
  redis.call('PERSIST', subject_k)
end
if subject ~= '' and record.expires ~= '' then
  redis.call('HSET', subjects_k, id, subject)
else
  redis.call('HDEL', subjects_k, id)
end
if record.expires == '' then
  redis.call('ZREM', expiring_k, id)
else
  redis.call('ZADD', expiring_k, record.expires, id)
  redis.call('PEXPIREAT', record_k, record.expires)
end
redis.call('HDEL', contents_k, id)
if subject == '' then said.enter(said.of(content, content_k, same_k, contents_k, order_k, expiring_k), id) end
if subject == '' and not sources.enter(sources_k, order_k, id, superseded_by) and superseded_by ~= '' then
  record.id, record.valid_until, record.superseded_by, record.moved = id, '', '', true
  chain.store(head, log_k, record)
end
redis.call('HSET', head_k, 'seq', guard.text(head.seq), 'count', guard.text(head.count))
return {'OK'}
