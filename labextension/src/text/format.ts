const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

/** 1600 × 2²⁰ → `1.6 GiB`; three significant digits at most. */
export function formatBytes(bytes: number): string {
  let value = Math.max(0, bytes);
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : 1;
  return `${trimZeros(value.toFixed(digits))} ${UNITS[unit]}`;
}

export function formatMib(mib: number): string {
  return formatBytes(mib * 1024 * 1024);
}

/** What is copied to and from memory, so in its units: `67.1 KiB/s`. */
export function formatRate(bytesPerSecond: number): string {
  return `${formatBytes(bytesPerSecond)}/s`;
}

/** Time of day of Unix milliseconds, as the reader writes it: `12:03:10`. */
export function formatTimeOfDay(unixMs: number): string {
  return new Date(unixMs).toLocaleTimeString();
}

/** 0.404 → `40 %`. */
export function formatPercent(fraction: number): string {
  return `${Math.round(Math.min(1, Math.max(0, fraction)) * 100)} %`;
}

/** Seconds of a countdown, rounded up: 37.2 → `0:38`, 3700 → `61:40`. */
export function formatCountdown(seconds: number): string {
  const whole = Math.max(0, Math.ceil(seconds));
  const rest = String(whole % 60).padStart(2, '0');
  return `${Math.floor(whole / 60)}:${rest}`;
}

/** A guess in the future: 45 → `45 s`, 130 → `3 min`, 7300 → `2 h`. */
export function formatGuess(seconds: number): string {
  if (seconds <= 90) {
    return `${Math.max(1, Math.round(seconds))} s`;
  }
  return seconds <= 90 * 60
    ? `${Math.ceil(seconds / 60)} min`
    : `${Math.round(seconds / 3600)} h`;
}

/** What has passed or is set, as the server's `duration_text` says it: 100 → `100 s`, 590 → `10 min`, 6000 → `1 h 40 min`. */
export function formatSpan(seconds: number): string {
  const whole = Math.max(0, rounded(seconds));
  if (whole < 120 && whole !== 60) {
    return `${whole} s`;
  }
  const all = rounded(whole / 60);
  const minutes = all % 60;
  const hours = Math.floor(all / 60);
  if (hours === 0) {
    return `${minutes} min`;
  }
  return minutes > 0 ? `${hours} h ${minutes} min` : `${hours} h`;
}

/** As Python rounds: a half goes to the even neighbour. */
function rounded(value: number): number {
  return value % 1 === 0.5 ? 2 * Math.round(value / 2) : Math.round(value);
}

/** Device time: 0.0123 → `12 ms`, 1.234 → `1.23 s`, 200 → `3 min 20 s`. */
export function formatSeconds(seconds: number): string {
  if (seconds > 0 && seconds < 0.001) {
    return `${Math.round(seconds * 1e6)} µs`;
  }
  const ms = Math.round(seconds * 1000);
  if (ms < 1000) {
    return `${ms} ms`;
  }
  if (seconds < 100) {
    return `${Number(seconds.toPrecision(3))} s`;
  }
  const whole = Math.round(seconds);
  return `${Math.floor(whole / 60)} min ${whole % 60} s`;
}

function trimZeros(text: string): string {
  return text.includes('.') ? text.replace(/\.?0+$/, '') : text;
}
