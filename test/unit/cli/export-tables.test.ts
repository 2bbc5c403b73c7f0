import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { exportCommand } from '../../../src/cli/export.ts';
import { testFolder } from '../../helpers/folder.ts';
import { runCommandHere } from '../../helpers/run-command.ts';

const never = new AbortController().signal;

/** Starts an export area that returns this data to every call; returns its address. */
async function startArea(data: object): Promise<string> {
  const server = createServer((request, response) => {
    request.resume();
    response.end(JSON.stringify({ code: 200, message: 'Ok', data }));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Runs a verb of `export`; returns its lines on standard output, which is a terminal for a table. */
async function run(words: readonly string[], data: object, isTable: boolean): Promise<string> {
  const lines: string[] = [];
  const code = await runCommandHere(exportCommand, [...words, '--url', await startArea(data), '--user', '1'], {
    environment: { HOME: testFolder(), TRIBUTARY_SECRET: 's' },
    entry: '',
    printResult: (value) => void lines.push(JSON.stringify(value)),
    print: (line) => void lines.push(line),
    printMessage: () => undefined,
    ...(isTable ? { screen: { columns: 200 } } : {}),
    stop: never,
    force: never,
  });
  expect(code).toBe(0);
  return lines.join('\n');
}

const exported = {
  idRawExport: '17',
  status: 'Success',
  files: [],
  slotMayBeIncomplete: true,
  slotMayLackEvents: true,
};
const limit = { limit: 'rows', allowed: 1, isCertain: true, action: 'Export fewer days.', todo: 'Export fewer days.' };

const days = ['--from', '2026-05-01', '--to', '2026-05-02'];

it.each([
  [['list'], { reports: [exported] }, 'slotMayBeIncomplete', 'slotMayLackEvents'],
  [['get', '17'], exported, 'slotMayBeIncomplete', 'slotMayLackEvents'],
  [['wait', '17'], exported, 'slotMayBeIncomplete', 'slotMayLackEvents'],
  [['estimate', 'customEvents', ...days], { overLimits: [limit] }, 'action', 'todo'],
  [['preview', 'customEvents', ...days], { isTruncated: true, isCut: true }, 'isTruncated', 'isCut'],
])(
  'The table of %j has current names only, and its JSON has the former ones too',
  async (words, data, name, former) => {
    const [table, json] = [await run(words, data, true), await run(words, data, false)];
    expect(table).toContain(name);
    expect(table).not.toContain(former);
    for (const member of [name, former]) expect(json).toContain(`"${member}":`);
  },
);
