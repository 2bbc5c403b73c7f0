import { describe, expect, it } from 'vitest';
import { createMutex, createKeyedSemaphore } from '../../../../src/runtime/async/semaphore.ts';

const ignore = (): void => undefined;

/** A task that records its begin, and ends on demand. */
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
    const keyed = createKeyedSemaphore();
    const [one, again, other] = [createTask(steps, 'one'), createTask(steps, 'again'), createTask(steps, 'other')];
    const results = [keyed.run(1, one.task), keyed.run(1, again.task), keyed.run(2, other.task)];
    await settled();
    expect(steps).toEqual(['one begins', 'other begins']);
    for (const task of [one, again, other]) task.end();
    expect(await Promise.all(results)).toEqual(['one', 'again', 'other']);
    expect(steps.indexOf('again begins')).toBeGreaterThan(steps.indexOf('one ends'));
  });
});

describe('a mutex for the tasks of many', () => {
  it('A caller with one task gets it after one task of a caller with many, even if tasks fail', async () => {
    const steps: string[] = [];
    const mutex = createKeyedSemaphore(1, 1);
    const ask = (key: number, name: string): Promise<void> =>
      mutex.run(key, async () => {
        steps.push(name);
        await settled();
        if (name === 'many 2') throw new Error('refused');
      });
    const many = ['many 1', 'many 2', 'many 3'].map((name) => ask(1, name));
    const few = [ask(2, 'one'), ask(3, 'other')];
    expect([mutex.count(), mutex.count(1), mutex.count(2), mutex.count(4)]).toEqual([5, 3, 1, 0]);
    const ends = await Promise.allSettled([...many, ...few]);
    expect(ends.map(({ status }) => status === 'fulfilled')).toEqual([true, false, true, true, true]);
    expect(steps).toEqual(['many 1', 'many 2', 'one', 'other', 'many 3']);
    expect(mutex.count()).toBe(0);
    await ask(1, 'again');
    expect(steps.at(-1)).toBe('again');
  });
});

describe('a task with a signal', () => {
  it('A task whose signal aborts while it waits is not run, counts no longer, and leaves the others their turns', async () => {
    const steps: string[] = [];
    const slots = createKeyedSemaphore();
    const [first, second, third] = ['first', 'second', 'third'].map((name) => createTask(steps, name));
    if (first === undefined || second === undefined || third === undefined) throw new Error('there are three');
    const gone = new AbortController();
    const results = [slots.run(1, first.task), slots.run(1, second.task, gone.signal), slots.run(1, third.task)];
    expect(slots.count(1)).toBe(3);
    gone.abort(new Error('the caller has left'));
    await expect(results[1]).rejects.toThrow('the caller has left');
    expect(slots.count(1)).toBe(2);
    for (const task of [first, third]) task.end();
    expect([await results[0], await results[2]]).toEqual(['first', 'third']);
    expect(steps).toEqual(['first begins', 'first ends', 'third begins', 'third ends']);
    expect(slots.count()).toBe(0);
    await expect(slots.run(1, second.task, gone.signal)).rejects.toThrow('the caller has left');
  });

  it('A task that has begun ignores its signal, and the last one that leaves a key leaves nothing behind', async () => {
    const slots = createKeyedSemaphore();
    const running = createTask([], 'running');
    const [one, other] = [new AbortController(), new AbortController()];
    const result = slots.run(1, running.task, one.signal);
    const waiting = slots.run(1, running.task, other.signal);
    for (const controller of [one, other]) controller.abort();
    await expect(waiting).rejects.toThrow('aborted');
    running.end();
    expect(await result).toBe('running');
    expect(slots.count()).toBe(0);
    expect(await slots.run(1, async () => 'next')).toBe('next');
  });
});
