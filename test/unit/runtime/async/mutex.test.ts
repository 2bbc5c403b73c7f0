import { describe, expect, it } from 'vitest';
import { createMutex, createKeyedMutex } from '../../../../src/runtime/async/mutex.ts';

const ignore = (): void => undefined;

/** A task that notes when it begins, and ends when it is told to. */
function createTask(steps: string[], name: string): { readonly task: () => Promise<string>; end(): void } {
  let end = ignore;
  const ended = new Promise<void>((resolve) => {
    end = resolve;
  });
  const task = async (): Promise<string> => {
    steps.push(`${name} begins`);
    await ended;
    steps.push(`${name} ends`);
    return name;
  };
  return { task, end: () => end() };
}

const settled = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

describe('a mutex', () => {
  it('A mutex runs tasks one after the other in the order in which they were asked for, also after one that failed', async () => {
    const steps: string[] = [];
    const mutex = createMutex();
    const [first, second] = [createTask(steps, 'first'), createTask(steps, 'second')];
    second.end();
    const results = [
      mutex.run(first.task),
      mutex.run(() => Promise.reject(new Error('refused'))),
      mutex.run(second.task),
    ];
    await settled();
    expect(steps).toEqual(['first begins']);
    first.end();
    expect(await Promise.allSettled(results)).toMatchObject([
      { value: 'first' },
      { reason: new Error('refused') },
      { value: 'second' },
    ]);
    expect(steps).toEqual(['first begins', 'first ends', 'second begins', 'second ends']);
  });
});

describe('a mutex for each key', () => {
  it('Changes of one key wait for each other, and not for those of another', async () => {
    const steps: string[] = [];
    const keyed = createKeyedMutex();
    const [one, again, other] = [createTask(steps, 'one'), createTask(steps, 'again'), createTask(steps, 'other')];
    const results = [keyed.run(1, one.task), keyed.run(1, again.task), keyed.run(2, other.task)];
    await settled();
    expect(steps).toEqual(['one begins', 'other begins']);
    for (const task of [one, again, other]) task.end();
    expect(await Promise.all(results)).toEqual(['one', 'again', 'other']);
    expect(steps.indexOf('again begins')).toBeGreaterThan(steps.indexOf('one ends'));
  });
});
