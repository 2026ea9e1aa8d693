/**
 * Live use of one kernel's GPU share.
 *
 * The page asks the server, never the kernel: a busy kernel could not answer, and its
 * messages would count as activity and keep an idle GPU from going back.
 */

const POLL_MS = 1000;
const SLOWEST_POLL_MS = 15000;
const HISTORY_SECONDS = 300;
const CHART = { width: 300, height: 48 };
const HOLDING = new Set(['attached', 'warned']);
const SVG = 'http://www.w3.org/2000/svg';

const STATE_TEXT = {
  none: 'no GPU attached',
  queued: 'waiting in the queue',
  attached: 'attached',
  warned: 'idle, goes back soon',
  parked: 'parked: memory kept, no GPU held',
  closed: 'closed',
  lost: 'lost'
};

/** Where the server is; null in a page that is not JupyterLab or Notebook. */
function serverOf(page) {
  const config = page.getElementById('jupyter-config-data');
  if (!config) {
    return null;
  }
  try {
    const { baseUrl, token } = JSON.parse(config.textContent ?? '');
    return typeof baseUrl === 'string' ? { baseUrl, token } : null;
  } catch {
    return null;
  }
}

function cookie(name) {
  const found = document.cookie.split('; ').find(part => part.startsWith(`${name}=`));
  return found ? decodeURIComponent(found.slice(name.length + 1)) : null;
}

async function request(server, method, path, body, signal) {
  const root = server.baseUrl.endsWith('/') ? server.baseUrl : `${server.baseUrl}/`;
  const headers = { 'Content-Type': 'application/json' };
  if (server.token) {
    headers.Authorization = `token ${server.token}`;
  }
  const xsrf = cookie('_xsrf');
  if (method !== 'GET' && xsrf) {
    headers['X-XSRFToken'] = xsrf;
  }
  const response = await fetch(`${root}gpupool/${path}`, {
    method,
    headers,
    credentials: 'same-origin',
    body: body === undefined ? undefined : JSON.stringify(body),
    signal
  });
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) {
    throw new Error(answer.message ?? `The server answered ${response.status}.`);
  }
  return answer;
}

function amount(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

function shareText(share) {
  if (!share) {
    return '';
  }
  const many = share.count > 1 ? `${share.count} × ` : '';
  return `${many}${share.milli / 1000} GPU, ${amount(share.mib * 1048576)}`;
}

const PLACE_TEXT = {
  device: 'memory: on the device',
  host: 'memory: in host memory',
  image: 'memory: on disk'
};

const ACTIVITY_TEXT = {
  parking: 'memory: being moved off its device',
  resuming: 'memory: being brought back to a device',
  moving: 'memory: being moved to another node'
};

/** Where the session's memory is, as far as it matters now, and what cannot be done with it. */
function notesOf(usage) {
  const memory = usage.memory;
  if (!memory) {
    return [];
  }
  const resting = usage.state === 'parked' || usage.state === 'queued';
  const toDisk = memory.activity === 'parking' && memory.place === 'host';
  const activity = toDisk
    ? 'memory: being moved from host memory to disk'
    : ACTIVITY_TEXT[memory.activity];
  const place = activity ?? (resting ? PLACE_TEXT[memory.place] : undefined);
  return [...(place ? [place] : []), ...memory.obstacles];
}

function element(tag, className, text) {
  const made = document.createElement(tag);
  made.className = className;
  if (text !== undefined) {
    // textContent, never innerHTML: messages carry names that other people chose.
    made.textContent = text;
  }
  return made;
}

/** A labelled bar; `set(part, text)` with part 0..1. */
function bar(label) {
  const row = element('div', 'jp-GpuUsage-row');
  const track = element('div', 'jp-GpuUsage-track');
  const fill = element('div', 'jp-GpuUsage-fill');
  const value = element('span', 'jp-GpuUsage-value');
  track.setAttribute('role', 'progressbar');
  track.setAttribute('aria-label', label);
  track.setAttribute('aria-valuemin', '0');
  track.setAttribute('aria-valuemax', '100');
  track.append(fill);
  row.append(element('span', 'jp-GpuUsage-label', label), track, value);
  return {
    row,
    set(part, text) {
      const percent = Math.round(100 * Math.min(1, Math.max(0, part)));
      fill.style.width = `${percent}%`;
      track.setAttribute('aria-valuenow', String(percent));
      track.setAttribute('aria-valuetext', text);
      value.textContent = text;
    }
  };
}

/** The last five minutes as a line; samples that are missing leave a gap. */
function sparkline() {
  const chart = document.createElementNS(SVG, 'svg');
  chart.setAttribute('class', 'jp-GpuUsage-chart');
  chart.setAttribute('viewBox', `0 0 ${CHART.width} ${CHART.height}`);
  chart.setAttribute('preserveAspectRatio', 'none');
  chart.setAttribute('role', 'img');
  const line = document.createElementNS(SVG, 'path');
  line.setAttribute('class', 'jp-GpuUsage-line');
  chart.append(line);
  return {
    chart,
    draw(samples) {
      const now = samples.length ? samples[samples.length - 1].t : 0;
      let path = '';
      let before = -Infinity;
      for (const { t, utilization } of samples) {
        const x = CHART.width * (1 - (now - t) / HISTORY_SECONDS);
        const y = 1 + (CHART.height - 2) * (1 - utilization);
        path += `${t - before > 5 ? 'M' : 'L'}${x.toFixed(1)} ${y.toFixed(1)}`;
        before = t;
      }
      line.setAttribute('d', path);
      const mean = samples.length
        ? samples.reduce((sum, sample) => sum + sample.utilization, 0) / samples.length
        : 0;
      chart.setAttribute(
        'aria-label',
        `GPU use over the last five minutes, ${Math.round(100 * mean)} % on average`
      );
    }
  };
}

function build(el) {
  const root = element('section', 'jp-GpuUsage');
  root.setAttribute('aria-label', 'GPU use of this kernel');
  const head = element('div', 'jp-GpuUsage-head');
  const state = element('span', 'jp-GpuUsage-state');
  state.setAttribute('role', 'status');
  const share = element('span', 'jp-GpuUsage-share');
  const keep = element('button', 'jp-GpuUsage-button', 'Keep 10 min');
  const detach = element('button', 'jp-GpuUsage-button', 'Detach');
  keep.type = detach.type = 'button';
  head.append(state, share, keep, detach);
  const compute = bar('Compute');
  const memory = bar('Memory');
  const line = sparkline();
  const traffic = element('div', 'jp-GpuUsage-traffic');
  const notes = element('ul', 'jp-GpuUsage-notes');
  const message = element('div', 'jp-GpuUsage-message');
  root.append(head, compute.row, memory.row, line.chart, traffic, notes, message);
  el.append(root);
  return { root, state, share, keep, detach, compute, memory, line, traffic, notes, message };
}

function draw(view, usage, samples) {
  const last = samples[samples.length - 1];
  const holds = HOLDING.has(usage.state);
  const notice = usage.notice ?? null;
  const countdown =
    notice?.seconds_left ?? (usage.state === 'warned' ? usage.idle?.countdown : null);
  const place = usage.queue?.place ? ` (place ${usage.queue.place})` : '';
  const word = notice
    ? 'asked back for others, goes'
    : usage.returning
      ? 'taken back for others, waits to come again'
      : (STATE_TEXT[usage.state] ?? usage.state);
  const wait = countdown === null || countdown === undefined ? '' : ` in ${countdown} s`;
  const software = usage.software ? 'software GPU · ' : '';
  view.root.dataset.state = usage.state;
  view.state.textContent = `${word}${place}${wait}`;
  view.share.textContent = usage.share ? `${software}${shareText(usage.share)}` : '';
  view.keep.hidden = usage.state !== 'warned' || notice !== null;
  view.detach.hidden = !usage.held;
  const busy = holds && last ? last.utilization : 0;
  view.compute.set(busy, `${Math.round(100 * busy)} %`);
  const used = usage.usage?.memory_bytes ?? 0;
  const granted = usage.share ? usage.share.mib * usage.share.count * 1048576 : 0;
  view.memory.set(
    granted ? used / granted : 0,
    granted ? `${amount(used)} of ${amount(granted)}` : `${amount(used)} kept`
  );
  view.line.draw(samples);
  view.traffic.textContent =
    holds && last
      ? `to device ${amount(last.to_device_bps)}/s · from device ${amount(last.from_device_bps)}/s`
      : '';
  view.notes.replaceChildren(...notesOf(usage).map(note => element('li', '', note)));
  view.message.textContent = notice ? notice.explanation : holds ? '' : (usage.message ?? '');
}

function render({ model, el }) {
  const server = serverOf(document);
  const kernel = model.get('kernel_id');
  if (!server || !kernel) {
    el.append(element('pre', 'jp-GpuUsage-fallback', model.get('summary')));
    return undefined;
  }
  const view = build(el);
  const path = `api/kernels/${encodeURIComponent(kernel)}`;
  const ended = new AbortController();
  let samples = [];
  let timer = null;
  let pause = POLL_MS;
  let polling = false;

  async function poll() {
    clearTimeout(timer);
    timer = null;
    if (polling || ended.signal.aborted) {
      return;
    }
    polling = true;
    try {
      if (!document.hidden) {
        const since = samples.length ? samples[samples.length - 1].t : 0;
        const usage = await request(server, 'GET', `${path}/usage?since=${since}`, undefined, ended.signal);
        const newest = usage.samples.length ? usage.samples[usage.samples.length - 1].t : since;
        samples = [...samples, ...usage.samples].filter(sample => sample.t > newest - HISTORY_SECONDS);
        draw(view, usage, samples);
        pause = POLL_MS;
      }
    } catch (error) {
      if (ended.signal.aborted) {
        return;
      }
      view.message.textContent = error.message;
      pause = Math.min(2 * pause, SLOWEST_POLL_MS);
    } finally {
      polling = false;
    }
    if (!ended.signal.aborted) {
      timer = setTimeout(poll, pause);
    }
  }

  async function act(action, body) {
    try {
      await request(server, 'POST', `${path}/${action}`, body, ended.signal);
      pause = POLL_MS;
      await poll();
    } catch (error) {
      if (!ended.signal.aborted) {
        view.message.textContent = error.message;
      }
    }
  }

  const { signal } = ended;
  view.keep.addEventListener('click', () => act('keep', { minutes: 10 }), { signal });
  view.detach.addEventListener('click', () => act('detach', {}), { signal });
  document.addEventListener('visibilitychange', () => !document.hidden && poll(), { signal });
  void poll();

  return () => {
    ended.abort();
    clearTimeout(timer);
  };
}

export default { render };
