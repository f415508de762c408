-- Prelude: the records about one subject, ordered by valid_from and, where that is equal, by their first write.
-- luacheck: read globals guard path
local chain = {} -- luacheck: ignore chain

-- near maps the ids whose record's key was declared to that key; reach bounds how many undeclared ids are asked for.
function chain.of(subject, key, order, near, reach, now)
  return {subject = subject, key = key, order = order, near = near, reach = tonumber(reach), now = now, asked = {}, dead = {}}
end

local function peers(line, score)
  local ids, rank = redis.call('ZRANGEBYSCORE', line.key, score, score), {}
  for _, id in ipairs(ids) do
    rank[id] = tonumber(redis.call('ZSCORE', line.order, id) or '0')
  end
  table.sort(ids, function(a, b) return rank[a] < rank[b] end)
  return ids, rank
end

local function further(line, score, step)
  if step < 0 then
    return redis.call('ZREVRANGEBYSCORE', line.key, '(' .. score, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  end
  return redis.call('ZRANGEBYSCORE', line.key, '(' .. score, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
end

-- Finds the nearest record before (step -1) or after (step 1) a place, passing over rows whose record is gone.
-- If one on the way was not declared, the ids from there on are added to line.asked, and the answer does not count.
function chain.neighbour(line, id, score, rank, step)
  local offered, ids, ranks = 0, peers(line, score)
  local here = true
  while score do
    for i = 1, #ids do
      local peer = step < 0 and ids[#ids + 1 - i] or ids[i]
      if peer ~= id and (not here or (ranks[peer] - rank) * step > 0) then
        local key = line.near[peer]
        if offered > 0 or not key then
          offered = offered + 1
          line.asked[#line.asked + 1] = peer
          if offered >= line.reach then return end
        else
          local record = path.record(key, line.now)
          if record and record.subject == line.subject then
            record.id = peer
            return record
          end
          line.dead[#line.dead + 1] = peer
        end
      end
    end
    here, score = false, further(line, score, step)
    if score then ids, ranks = peers(line, score) end
  end
end

-- Finds the last record there is, which alone is not superseded.
function chain.last(line)
  local score = redis.call('ZREVRANGE', line.key, 0, 0, 'WITHSCORES')[2]
  return score and chain.neighbour(line, '', score, math.huge, -1)
end

-- What the record says stops at a time, because of another one that is valid from there; only what it said until then is cut off.
function chain.stop(record, valid_until, superseded_by)
  if record.valid_until == '' or tonumber(record.valid_until) > tonumber(valid_until) then
    record.valid_until, record.superseded_by, record.moved = valid_until, superseded_by, true
  end
end

-- What it says goes on to where another one went on to, if it was that one that stopped it.
function chain.resume(record, other, valid_until, superseded_by)
  if record.superseded_by == other then
    record.valid_until, record.superseded_by, record.moved = valid_until, superseded_by, true
  end
end

-- Stores a record whose end has moved; that is a write of it.
function chain.store(head, log, record)
  if not (record and record.moved) then return end
  local version = guard.text(tonumber(record.version) + 1)
  local seq = path.log(head, log, 'put', record.id, version)
  redis.call('HSET', record.key, 'version', version, 'seq', seq, 'updated', guard.text(head.now))
  if record.superseded_by == '' then
    redis.call('HDEL', record.key, 'valid_until', 'superseded_by')
  else
    redis.call('HSET', record.key, 'valid_until', record.valid_until, 'superseded_by', record.superseded_by)
  end
  record.moved = false
end

-- Takes rows away: one that leaves, if there is one, and those that were passed over because their record is gone.
function chain.clear(line, id)
  if id then line.dead[#line.dead + 1] = id end
  for i = 1, #line.dead, 1000 do
    redis.call('ZREM', line.key, unpack(line.dead, i, math.min(i + 999, #line.dead)))
  end
end

-- Enters a row. The list of a subject has no end of its own: a row goes when its record does, or when that is swept.
function chain.enter(line, id, score, expiring, subjects)
  redis.call('ZADD', line.key, score, id)
  chain.clear(line)
  if redis.call('PERSIST', line.key) == 1 then chain.keep(line, expiring, subjects) end
end

-- Keeps a list that once had an end: a sweep has to find its rows from here on, and those that no sweep will find go now.
function chain.keep(line, expiring, subjects)
  for _, id in ipairs(redis.call('ZRANGE', line.key, 0, -1)) do
    if redis.call('ZSCORE', expiring, id) then
      redis.call('HSETNX', subjects, id, line.subject)
    elseif not redis.call('ZSCORE', line.order, id) then
      redis.call('ZREM', line.key, id)
    end
  end
end
