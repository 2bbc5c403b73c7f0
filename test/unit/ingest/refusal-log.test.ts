import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { createRefusalLog } from '../../../src/ingest/refusal-log.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function startLog() {
  const lines: Readonly<Record<string, unknown>>[] = [];
  return { lines, log: createRefusalLog((fields) => void lines.push(fields)) };
}

const rules = { method: 'login', reason: 'rules', detail: '/age must be integer' } as const;
const token = { method: 'login', reason: 'token', detail: 'wrong token' } as const;
const first = (idApp: string) => ({ idApp, ...rules, requests: 1, reasons: ['rules: 1'] });

it('The first rejected request of an app is logged at once, and the further ones of a minute in one line by reason', () => {
  const { lines, log } = startLog();
  log.add('7', rules);
  expect(lines).toEqual([first('7')]);
  for (let request = 0; request < 500; request += 1) log.add('7', request % 100 === 0 ? rules : token);
  log.add('8', rules);
  vi.advanceTimersByTime(59_999);
  expect(lines).toEqual([first('7'), first('8')]);
  vi.advanceTimersByTime(1);
  expect(lines.slice(2)).toEqual([{ idApp: '7', ...rules, requests: 500, reasons: ['rules: 5', 'token: 495'] }]);
  log.add('7', token);
  vi.advanceTimersByTime(60_000);
  expect(lines.slice(3)).toEqual([{ idApp: '7', ...token, requests: 1, reasons: ['token: 1'] }]);
  vi.advanceTimersByTime(60_000);
  log.add('7', rules);
  expect(lines.slice(4)).toEqual([first('7')]);
});

it('A stop logs what is not logged yet', () => {
  const { lines, log } = startLog();
  log.add('7', rules);
  log.add('8', rules);
  log.add('8', token);
  log.stop();
  expect(lines.slice(2)).toEqual([{ idApp: '8', ...token, requests: 1, reasons: ['token: 1'] }]);
  vi.advanceTimersByTime(120_000);
  expect(lines).toHaveLength(3);
});

it('Invented app ids share one line a minute beyond a thousand of them', () => {
  const { lines, log } = startLog();
  for (let idApp = 1; idApp <= 5000; idApp += 1) log.add(String(idApp), token);
  expect(lines).toHaveLength(1001);
  vi.advanceTimersByTime(60_000);
  expect(lines.slice(1001)).toEqual([{ idApp: undefined, ...token, requests: 3999, reasons: ['token: 3999'] }]);
});
