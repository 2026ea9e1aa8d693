/** What the server's figures and ids are called on the page. */

const STATE_TEXT = {
  none: 'no GPU attached',
  queued: 'queued',
  attached: 'attached',
  warned: 'warned: not used, goes back',
  parked: 'parked: memory kept, no GPU held',
  closed: 'closed',
  lost: 'lost: the node with the GPU does not answer'
};

const PLACE_TEXT = {
  device: 'Memory: on the device.',
  host: 'Memory: in host memory.',
  image: 'Memory: on disk.'
};

const ACTIVITY_TEXT = {
  parking: 'Memory: being moved off its device.',
  resuming: 'Memory: being brought back to a device.',
  moving: 'Memory: being moved to another node.'
};

export function amount(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 120) {
    return `${whole} s`;
  }
  return whole < 7200 ? `${Math.round(whole / 60)} min` : `${(whole / 3600).toFixed(1)} h`;
}

/** `2 × 0.2 GPU, 1.6 GiB`. */
export function shareText({ milli, mib, count }) {
  const many = count > 1 ? `${count} × ` : '';
  return `${many}${milli / 1000} GPU, ${amount(mib * 1048576)}`;
}

/** The state, without what counts down: a screen reader says it when it changes. */
export function stateText(usage) {
  if (usage.notice) {
    return 'asked back for others';
  }
  if (usage.returning) {
    return 'taken back for others, waits to come again';
  }
  const place = usage.queue?.place ? `, place ${usage.queue.place}` : '';
  return `${STATE_TEXT[usage.state] ?? usage.state}${place}`;
}

/** What counts down, if something does. */
export function countdownText(usage) {
  if (usage.notice) {
    return `in ${duration(usage.notice.seconds_left)}`;
  }
  const left = usage.state === 'warned' ? usage.idle?.countdown : null;
  if (left !== null && left !== undefined) {
    return `in ${duration(left)}`;
  }
  const wait = usage.queue?.eta_seconds;
  return usage.state === 'queued' && wait ? `about ${duration(wait)} to go` : '';
}

/** Sentences below the charts: the queue, the idle ladder, a release, where memory is. */
export function notesOf(usage) {
  return [...queueNotes(usage), ...idleNotes(usage), ...releaseNotes(usage), ...memoryNotes(usage)];
}

function queueNotes({ state, queue }) {
  if (state !== 'queued' || !queue) {
    return [];
  }
  const helps = queue.explanation?.helps ?? [];
  return [queue.reason, ...helps.map(({ sentence }) => sentence)].filter(Boolean);
}

function idleNotes({ notice, state, idle }) {
  if (notice) {
    return [notice.explanation];
  }
  if (!idle || state === 'warned' || !idle.release_at || idle.seconds < 60) {
    return [];
  }
  return [`Not used for ${duration(idle.seconds)}; it goes back after ${duration(idle.release_at)}.`];
}

function releaseNotes({ held, state, released, message }) {
  if (held || state === 'queued') {
    return [];
  }
  return [released?.message || message].filter(Boolean);
}

function memoryNotes({ state, memory }) {
  if (!memory) {
    return [];
  }
  const resting = state === 'parked' || state === 'queued';
  const toDisk = memory.activity === 'parking' && memory.place === 'host';
  const activity = toDisk
    ? 'Memory: being moved from host memory to disk.'
    : ACTIVITY_TEXT[memory.activity];
  const place = activity ?? (resting ? PLACE_TEXT[memory.place] : undefined);
  return [...(place ? [place] : []), ...memory.obstacles];
}
