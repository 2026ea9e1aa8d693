/** The last minutes of a kernel on one canvas: compute as an area, memory as a line. */
import { element, setAttribute } from './elements.js';
import { HISTORY_SECONDS } from './shared_usage.js';

/** Samples come each second; a longer pause is a gap. */
const GAP_SECONDS = 5;

/** `draw(samples, granted)`; `granted` is the memory of the share in bytes, 0 while there is none. */
export function chart() {
  const canvas = element('canvas', 'jp-GpuUsage-chart');
  canvas.setAttribute('role', 'img');
  let size = null;
  let last = null;

  function paint() {
    if (!size || !last) {
      return;
    }
    const { width, height, scale } = size;
    const context = canvas.getContext('2d');
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
    } else {
      context.clearRect(0, 0, width, height);
    }
    const { samples, granted } = last;
    // Both colours are the theme's; style is read here before anything is written in this frame.
    const style = getComputedStyle(canvas);
    context.lineWidth = 1.5 * scale;
    const lines = runs(samples);
    const compute = at => point(at, at.utilization, size, samples);
    context.strokeStyle = context.fillStyle = style.color;
    for (const line of lines) {
      trace(context, line, compute);
      context.stroke();
      context.lineTo(compute(line[line.length - 1]).x, height);
      context.lineTo(compute(line[0]).x, height);
      context.globalAlpha = 0.2;
      context.fill();
      context.globalAlpha = 1;
    }
    if (granted) {
      context.strokeStyle = style.outlineColor;
      context.setLineDash([4 * scale, 3 * scale]);
      for (const line of lines) {
        trace(context, line, at => point(at, at.memory_bytes / granted, size, samples));
        context.stroke();
      }
      context.setLineDash([]);
    }
  }

  // The size is told, so that no frame has to ask for it.
  const watch = new ResizeObserver(entries => {
    const box = entries[entries.length - 1].contentRect;
    const scale = globalThis.devicePixelRatio || 1;
    if (box.width > 0) {
      size = { width: Math.round(box.width * scale), height: Math.round(box.height * scale), scale };
      paint();
    }
  });
  watch.observe(canvas);

  return {
    canvas,
    dispose: () => watch.disconnect(),
    draw(samples, granted) {
      const newest = samples.length ? samples[samples.length - 1].t : 0;
      if (last && last.newest === newest && last.granted === granted) {
        return;
      }
      last = { samples, granted, newest };
      paint();
      setAttribute(canvas, 'aria-label', describe(samples, granted));
    }
  };
}

function describe(samples, granted) {
  const mean = samples.length
    ? samples.reduce((sum, { utilization }) => sum + utilization, 0) / samples.length
    : 0;
  const most = samples.reduce((least, { memory_bytes }) => Math.max(least, memory_bytes), 0);
  const memory = granted ? `, memory up to ${Math.round((100 * most) / granted)} % of the share` : '';
  return `GPU use over the last five minutes, ${Math.round(100 * mean)} % on average${memory}`;
}

/** The samples in pieces without a gap. */
function runs(samples) {
  const found = [];
  let before = -Infinity;
  for (const sample of samples) {
    if (sample.t - before > GAP_SECONDS) {
      found.push([]);
    }
    found[found.length - 1].push(sample);
    before = sample.t;
  }
  return found;
}

function point(sample, part, { width, height, scale }, samples) {
  const newest = samples[samples.length - 1].t;
  return {
    x: width * (1 - (newest - sample.t) / HISTORY_SECONDS),
    y: scale + (height - 2 * scale) * (1 - Math.min(1, Math.max(0, part)))
  };
}

function trace(context, line, place) {
  context.beginPath();
  for (const sample of line) {
    const { x, y } = place(sample);
    context.lineTo(x, y);
  }
}
