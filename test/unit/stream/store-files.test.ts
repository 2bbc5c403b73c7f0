import { closeSync, mkdirSync, openSync, renameSync, writeFileSync, writeSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { setTimeout as pass } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { createStoreCheck } from '../../../src/stream/store-files.ts';
import { testFolder } from '../../helpers/folder.ts';

/** A store whose server is this process: it has the file open that it writes to. */
function openStore() {
  const folder = testFolder();
  const messages = path.join(folder, 'store', 'jetstream', 'msgs');
  mkdirSync(messages, { recursive: true });
  writeFileSync(path.join(folder, `nats-server_${process.pid}.ports`), '{}');
  const fileOf = (number: number): string => path.join(messages, `${number}.blk`);
  let open: number | undefined;
  const close = (): void => {
    if (open !== undefined) closeSync(open);
    open = undefined;
  };
  onTestFinished(close);
  return {
    folder,
    begin(number: number): void {
      close();
      open = openSync(fileOf(number), 'a');
    },
    write: () => void writeSync(open ?? -1, 'message'),
    /** Puts another file in the place of one, as a restore does. */
    replace(number: number): void {
      writeFileSync(`${fileOf(number)}.restored`, 'older');
      renameSync(`${fileOf(number)}.restored`, fileOf(number));
    },
  };
}

test('A store is trusted while the server writes to files that are in it', async () => {
  const store = openStore();
  store.begin(1);
  const check = createStoreCheck(store.folder);
  for (let number = 1; number <= 3; number += 1) {
    store.begin(number);
    for (let times = 0; times < 3; times += 1) {
      store.write();
      expect(await check.isKept()).toBe(true);
    }
  }
});

test('A store from which a file was taken is not trusted when the server begins another one, until the supervisor has checked', async () => {
  const distrustedMs = 500;
  const store = openStore();
  store.begin(1);
  const check = createStoreCheck(store.folder, distrustedMs);
  store.write();
  expect(await check.isKept()).toBe(true);
  store.replace(1);
  store.write();
  expect(await check.isKept()).toBe(false);
  const refusedMs = performance.now();
  store.begin(2);
  store.write();
  expect(await check.isKept()).toBe(false);
  await pass(distrustedMs - (performance.now() - refusedMs) + 50);
  store.write();
  expect(await check.isKept()).toBe(true);
});
