-- Prelude: the head of a path, its log, and the ops by which a repeated write is recognised.
-- luacheck: read globals guard
local path = {} -- luacheck: ignore path

-- Answers what an op was answered when it was applied; nothing if it was not. An op is scored by the time it begins with.
function path.answered(ops, op)
  local at = string.sub(op, 1, 16)
  for _, row in ipairs(redis.call('ZRANGEBYSCORE', ops, at, at)) do
    if string.sub(row, 1, #op + 1) == op .. ' ' then
      return string.sub(row, #op + 2)
    end
  end
end

function path.overdue(op, now, keep_ms)
  return tonumber(string.sub(op, 1, 16)) < now - keep_ms * 1000
end

-- Reads the head; answers a refusal beside it if the caller has seen more than is stored.
function path.head(key, order, now, incarnation, seq)
  local f = redis.call('HMGET', key, 'incarnation', 'seq', 'count', 'space', 'vectors')
  local head = {key = key, now = now, incarnation = f[1], seq = tonumber(f[2] or '0'), count = tonumber(f[3] or '0'), space = f[4],
                vectors = f[5]}
  if f[1] and incarnation ~= '' and f[1] ~= incarnation then
    return head, {'REGRESSED', 'incarnation'}
  end
  if not f[1] and (incarnation ~= '' or redis.call('EXISTS', order) == 1) then
    return head, {'REGRESSED', 'head'}
  end
  if head.seq < tonumber(seq) then
    return head, {'REGRESSED', 'seq'}
  end
  return head
end

-- Counts one change of the path and logs it; answers its seq.
function path.log(head, key, op, id, version)
  head.seq = head.seq + 1
  local seq = guard.text(head.seq)
  redis.call('XADD', key, seq .. '-0', 'op', op, 'id', id, 'version', version)
  return seq
end

-- Stores the head, which is what makes the changes count, then the op with its answer; ops stay at least keep_ms.
function path.close(head, ops, op, keep_ms, answer)
  if not head.incarnation then
    head.incarnation = guard.text(head.now)
    redis.call('HSET', head.key, 'incarnation', head.incarnation, 'created', head.incarnation)
  end
  redis.call('HSET', head.key, 'seq', guard.text(head.seq), 'count', guard.text(head.count))
  redis.call('ZADD', ops, string.sub(op, 1, 16), op .. ' ' .. answer)
  if redis.call('PTTL', ops) < keep_ms then
    redis.call('ZREMRANGEBYSCORE', ops, '-inf', '(' .. guard.text(head.now - keep_ms * 1000))
    redis.call('PEXPIRE', ops, 2 * keep_ms)
  end
end

-- Reads what a record is judged by; nothing if there is none, or its time is over: the ms of its expiry has passed, as the server
-- counts it for the key.
function path.record(key, now)
  local f = redis.call('HMGET', key, 'version', 'seq', 'content', 'subject', 'valid_from', 'valid_until', 'superseded_by',
    'expires', 'created', 'vid', 'op', 'of', 'next_of', 'next_vid')
  if f[1] and not guard.expired(f[8], now - 1000) then
    return {key = key, version = f[1], seq = f[2], content = f[3], subject = f[4] or '', valid_from = f[5],
            valid_until = f[6] or '', superseded_by = f[7] or '', expires = f[8] or '', created = f[9], vid = f[10] or '',
            op = f[11], of = f[12] or '', next_of = f[13] or '', next_vid = f[14] or ''}
  end
end

-- Answers the tag of an embedding space, by which a vector says to which it belongs.
function path.tag(space)
  return string.sub(redis.sha1hex(space), 1, 16)
end

-- Answers the id of a record's vector of the path's space, '' if it has none: that space changes at once for all records, so a
-- record may hold a vector of another one beside it.
function path.vid(head, record)
  local tag = head.space and path.tag(head.space)
  return tag and (record.of == tag and record.vid or record.next_of == tag and record.next_vid) or ''
end
