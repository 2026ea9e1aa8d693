import type { TranslationBundle } from '@jupyterlab/translation';
import { formatBytes, formatSeconds } from '../text/format';
import { readOutOfMemory, type IOutOfMemory } from './cellMemory';

/** What a `%%gpu` cell used, as `jupyter_gpupool.kernel.figures` writes it. */
export const CELL_MIME_TYPE = 'application/vnd.gpupool.cell+json';

export interface ICellResult {
  title: string;
  /** Null: the cell never reached a GPU. */
  figures: ICellFigures | null;
  /** What makes the cell wait for the GPU. */
  hint: string | null;
  note: string | null;
  outOfMemory: IOutOfMemory | null;
}

/** Seconds, bytes and counts; null: not told. */
export interface ICellFigures {
  wallSeconds: number | null;
  deviceSeconds: number | null;
  calls: number | null;
  roundTrips: number | null;
  blockingSeconds: number | null;
  bytesToDevice: number | null;
  bytesFromDevice: number | null;
  memoryPeakBytes: number | null;
  byCall: readonly { call: string; count: number; seconds: number }[];
}

/** More rows than kernels write are not shown. */
const MOST_CALLS = 20;

/**
 * Reads the figures of a saved notebook, which anybody may have written: a
 * value of another kind counts as not told. Null: it is none of ours.
 */
export function readCellResult(data: unknown): ICellResult | null {
  if (!isObject(data) || typeof data.title !== 'string') {
    return null;
  }
  const { figures } = data;
  return {
    title: data.title,
    figures: isObject(figures) ? readFigures(figures) : null,
    hint: textOf(data.hint),
    note: textOf(data.note),
    outOfMemory: readOutOfMemory(data.out_of_memory)
  };
}

function readFigures(data: { [key: string]: unknown }): ICellFigures {
  const calls = Array.isArray(data.round_trips_by_call)
    ? data.round_trips_by_call
    : [];
  return {
    wallSeconds: numberOf(data.wall_seconds),
    deviceSeconds: numberOf(data.device_seconds),
    calls: numberOf(data.calls),
    roundTrips: numberOf(data.blocking_round_trips),
    blockingSeconds: numberOf(data.blocking_seconds),
    bytesToDevice: numberOf(data.bytes_to_device),
    bytesFromDevice: numberOf(data.bytes_from_device),
    memoryPeakBytes: numberOf(data.memory_peak_bytes),
    byCall: calls
      .slice(0, MOST_CALLS)
      .filter(isObject)
      .map(row => ({
        call: textOf(row.call) ?? '',
        count: numberOf(row.count) ?? 0,
        seconds: numberOf(row.seconds) ?? 0
      }))
      .filter(row => row.call !== '')
  };
}

/** What is read at a glance, in order. */
export function summaryParts(
  figures: ICellFigures,
  trans: TranslationBundle
): string[] {
  const parts: string[] = [];
  const { deviceSeconds, wallSeconds, memoryPeakBytes, roundTrips } = figures;
  if (deviceSeconds !== null && wallSeconds !== null) {
    parts.push(
      trans.__(
        'device time %1 of %2',
        formatSeconds(deviceSeconds),
        formatSeconds(wallSeconds)
      )
    );
  } else if (wallSeconds !== null) {
    parts.push(trans.__('wall time %1', formatSeconds(wallSeconds)));
  }
  if (memoryPeakBytes !== null) {
    parts.push(trans.__('peak memory %1', formatBytes(memoryPeakBytes)));
  }
  if (roundTrips !== null) {
    parts.push(
      trans._n(
        '%2 wait for the GPU',
        '%2 waits for the GPU',
        roundTrips,
        roundTrips.toLocaleString()
      )
    );
  }
  return parts;
}

/** All that is known, (name, value) in order. */
export function detailRows(
  figures: ICellFigures,
  trans: TranslationBundle
): [string, string][] {
  const rows: [string, string | null][] = [
    [trans.__('Device time'), seconds(figures.deviceSeconds)],
    [trans.__('Wall time'), seconds(figures.wallSeconds)],
    [trans.__('Peak memory'), bytes(figures.memoryPeakBytes)],
    [trans.__('To the device'), bytes(figures.bytesToDevice)],
    [trans.__('From the device'), bytes(figures.bytesFromDevice)],
    [trans.__('CUDA calls'), count(figures.calls)],
    [trans.__('Waits for the GPU'), count(figures.roundTrips)],
    [trans.__('Waited for them'), seconds(figures.blockingSeconds)],
    ...figures.byCall.map((row): [string, string] => [
      trans.__('Waited for %1', row.call.replace(/_v2$/, '')),
      trans._n(
        'once, %2',
        '%3 times, %2',
        row.count,
        formatSeconds(row.seconds),
        row.count.toLocaleString()
      )
    ])
  ];
  return rows.filter((row): row is [string, string] => row[1] !== null);
}

function seconds(value: number | null): string | null {
  return value === null ? null : formatSeconds(value);
}

function bytes(value: number | null): string | null {
  return value === null ? null : formatBytes(value);
}

function count(value: number | null): string | null {
  return value === null ? null : value.toLocaleString();
}

function isObject(value: unknown): value is { [key: string]: unknown } {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function textOf(value: unknown): string | null {
  return typeof value === 'string' && value !== '' ? value : null;
}

function numberOf(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0
    ? value
    : null;
}
