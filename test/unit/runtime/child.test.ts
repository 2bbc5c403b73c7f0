import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { forkRole } from '../../../src/runtime/child.ts';
import { temporaryFolder } from '../../helpers/folder.ts';

const root = temporaryFolder();
const sends = 50;

/** Says that it is ready, stalls itself, and ends with the number of messages that it found afterwards. */
const stallingRole = `
let found = 0;
process.on('message', ({ end }) => {
  if (end) process.exit(found);
  found += 1;
});
process.send({ type: 'ready' }, () => process.kill(process.pid, 'SIGSTOP'));
`;

it('keeps no pile of news for a child that is stalled, and tells it the news again once it goes on', async () => {
  const entry = path.join(root, 'stalling-role.cjs');
  writeFileSync(entry, stallingRole);
  const child = await forkRole({ entry, role: 'x', environment: process.env, shared: false, readyMs: 30_000, signal: new AbortController().signal, onReport: () => undefined });
  const news = { text: 'x'.repeat(1024 * 1024) };
  for (let sent = 0; sent < sends; sent += 1) {
    child.send(news);
    await new Promise((resolve) => setImmediate(resolve));
  }
  process.kill(child.pid, 'SIGCONT');
  const asking = setInterval(() => child.send({ end: true }), 20);
  const { code } = await child.exited;
  clearInterval(asking);
  expect(code).toBeGreaterThan(0);
  expect(code).toBeLessThan(sends);
});
