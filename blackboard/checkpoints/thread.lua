-- Prelude of the scripts that judge a whole thread: time, meta, and who may write.

local function now_us()
  local t = redis.call('TIME')
  return t[1] .. string.rep('0', 6 - #t[2]) .. t[2]
end

local function whole(n)
  return string.format('%.0f', n)
end

-- Read what every writer is judged by. `expired` counts as deleted.
local function read_meta(key, now)
  local f = redis.call('HMGET', key, 'status', 'fence', 'holder', 'sequence', 'incarnation', 'expires', 'removing', 'pruned',
    'copying', 'interrupted')
  return {status = f[1], fence = f[2] or '0', holder = f[3], sequence = f[4] or '0', incarnation = f[5],
          expires = f[6], removing = f[7], pruned = f[8] or '', copying = f[9], interrupted = f[10],
          expired = f[5] and f[6] and tonumber(f[6]) * 1000 <= tonumber(now)}
end

-- A thread that takes no more checkpoints.
local function closed(m)
  return m.status == 'finished' or m.status == 'failed' or m.status == 'quarantined'
end

-- A thread that is not there: nil if a writer who shows `incarnation` and comes with a first checkpoint may open it.
local function judge_life(m, latest_exists, incarnation, first)
  if not m.status then
    if latest_exists then return {'REGRESSED', 'meta'} end
    if incarnation ~= '' then return {'GONE', 'missing'} end
    return nil
  end
  if m.expired then
    if incarnation ~= '' then return {'GONE', 'expired'} end
    return {'REMOVING', m.incarnation}
  end
  if not m.incarnation then
    if incarnation ~= '' then return {'GONE', m.status} end
    if m.removing then return {'REMOVING', m.removing} end
    if m.status == 'deleted' and not first then return {'GONE', 'deleted'} end
    if m.copying then return {'HELD', m.fence .. ':copy ' .. m.copying, 0} end
    return nil
  end
  if incarnation ~= '' and incarnation ~= m.incarnation then return {'GONE', 'reused'} end
  return nil
end

-- Who may write: the fence shown must be the newest grant; without one, nobody may hold the thread.
-- Returns a refusal or nil, and the fence under which the write stands.
local function judge_fence(m, fence, lock, now)
  if fence ~= '' then
    if fence == m.fence then return nil, fence end
    if tonumber(fence) > tonumber(m.fence) then return {'REGRESSED', 'fence'}, fence end
    return {'FENCED', m.fence}, fence
  end
  local held = redis.call('GET', lock)
  if held then return {'HELD', held, redis.call('PTTL', lock)}, fence end
  if m.holder then return nil, whole(math.max(tonumber(m.fence) + 1, tonumber(now))) end
  return nil, m.fence
end
