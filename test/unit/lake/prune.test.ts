import { describe, expect, it } from 'vitest';
import { pruneFiles, type FileFilter } from '../../../src/lake/files/prune.ts';
import type { DataFile } from '../../../src/lake/log/snapshot.ts';

const file = {
  path: 'a.parquet',
  numRecords: 3,
  minValues: { id_app: 10, kind: 'login', event_time: '2026-01-01T00:00:00.000Z' },
  maxValues: { id_app: 20, kind: 'login', event_time: '2026-01-01T00:00:59.999Z' },
} as unknown as DataFile;
const atMs = Date.parse('2026-01-01T00:00:59.999Z');
const named = (min: string, max: string): DataFile => ({
  ...file,
  minValues: { custom_event_name: min },
  maxValues: { custom_event_name: max },
});
const isKept = (filter: FileFilter, of: DataFile = file): boolean => pruneFiles([of], filter).length === 1;

describe('pruning by the statistics of the log', () => {
  it.each([
    ['the filter is empty', {}, true],
    ['an app is within the bounds', { idApps: [15] }, true],
    ['an app is the least or the greatest', { idApps: [10, 20] }, true],
    ['every app is outside the bounds', { idApps: [9, 21] }, false],
    ['the filter has no app', { idApps: [] }, false],
    ['a kind matches', { kinds: ['custom_event', 'login'] }, true],
    ['no kind matches', { kinds: ['custom_event'] }, false],
    ['the span ends before', { eventTime: { toMs: Date.parse('2025-12-31T23:59:59Z') } }, false],
    ['the span begins after', { eventTime: { fromMs: atMs + 2 } }, false],
    ['the span begins within the last millisecond, which the log rounds', { eventTime: { fromMs: atMs + 1 } }, true],
    ['the log has no such statistics', { availableAt: { fromMs: atMs * 2 } }, true],
  ] as const)('A file is kept or pruned by the statistics of the log if %s: %j, %s', (_what, filter, wanted) => {
    expect(isKept(filter as FileFilter)).toBe(wanted);
  });

  it('Names of events compare by their bytes, as the engine compares them', () => {
    // In UTF-16, the emoji (surrogates) comes before the ligature; in UTF-8 after it.
    const [ligature, emoji] = ['\uFB01', '\u{1F600}'];
    expect(isKept({ eventNames: ['level_up'] }, named('a', 'm'))).toBe(true);
    expect(isKept({ eventNames: ['a', 'm'] }, named('a', 'm'))).toBe(true);
    expect(isKept({ eventNames: ['Z', 'n'] }, named('a', 'm'))).toBe(false);
    expect(isKept({ eventNames: [] }, named('a', 'm'))).toBe(false);
    expect(isKept({ eventNames: [ligature] }, named('a', emoji))).toBe(true);
    expect(isKept({ eventNames: [emoji] }, named('a', ligature))).toBe(false);
    expect(isKept({ eventNames: ['x'] })).toBe(true);
  });

  it('A file without rows is always pruned', () => {
    expect(isKept({}, { ...file, numRecords: 0 })).toBe(false);
  });
});
