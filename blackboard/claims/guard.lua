-- Prelude: the server's clock, and whether a fence may still act on a thread. A thread that has expired is a deleted one.
local guard = {} -- luacheck: ignore guard

-- A reserved id and a tombstone live this long (7 days).
guard.reserved_ms = 604800000

function guard.text(number)
  return string.format('%.0f', number)
end

-- Answers the server's time in microseconds.
function guard.now()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

function guard.expired(expires, now)
  return expires and tonumber(expires) * 1000 <= now
end

-- Splits a lock, `<fence>:<owner>`; answers nothing for a lock that is absent.
function guard.split(lock)
  if lock then
    return string.match(lock, '^(%d+):(.*)$')
  end
end

-- Compares a caller's fence with the newest grant: nil if it is the newest, else the answer that refuses it.
function guard.fence(fence, stored, holder)
  if not stored or tonumber(fence) > tonumber(stored) then
    return {'REGRESSED'}
  end
  if tonumber(fence) < tonumber(stored) then
    return {'LOST', holder or '', stored}
  end
end

-- Refuses a caller who may not act on the effects of a thread. Answers the refusal or nil, the incarnation, the status.
function guard.thread(meta_key, latest_key, fence, incarnation)
  local meta = redis.call('HMGET', meta_key, 'status', 'fence', 'holder', 'incarnation', 'expires')
  if not meta[1] then
    if redis.call('EXISTS', latest_key) == 1 then
      return {'REGRESSED'}
    end
    return {'GONE', incarnation ~= '' and 'missing' or ''}
  end
  if guard.expired(meta[5], guard.now()) or meta[1] == 'deleted' or meta[1] == 'new' or not meta[4] then
    return {'GONE'}
  end
  if incarnation ~= '' and incarnation ~= meta[4] then
    return {'GONE'}
  end
  return guard.fence(fence, meta[2], meta[3]), meta[4], meta[1]
end
