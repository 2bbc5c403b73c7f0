import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { addSlot, findDueSlot, findNextSlot, hasExport, type SlotSpan } from '../../../src/schedules/schedules.ts';

const addAll = (slots: readonly number[]): readonly SlotSpan[] =>
  slots.reduce<readonly SlotSpan[]>((made, slot) => addSlot(made, slot), []);

test('Slots that are added in any order are stored as the fewest spans', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 60 }), { maxLength: 40 }), (slots) => {
      const made = addAll(slots);
      for (let slot = -1; slot <= 61; slot += 1) expect(hasExport(made, slot)).toBe(slots.includes(slot));
      for (const [index, [first, last]] of made.entries()) {
        expect(first).toBeLessThanOrEqual(last);
        expect(first).toBeGreaterThan((made[index - 1]?.[1] ?? -2) + 1);
      }
    }),
  );
});

test('Only the oldest of too many gaps are dropped', () => {
  const slots = Array.from({ length: 100 }, (_, index) => index * 2);
  const made = addAll(slots);
  expect(made.length).toBe(64);
  expect(made[0]).toEqual([0, 72]);
  for (const slot of slots) expect(hasExport(made, slot)).toBe(true);
  expect(hasExport(made, 75)).toBe(false);
});

test('The oldest missed slot within the catch-up limit is due first, and none before the first slot', () => {
  const made = addAll([10, 11, 12]);
  expect(findDueSlot({ firstSlot: 10, catchUp: 31, made }, 12)).toBeUndefined();
  expect(findDueSlot({ firstSlot: 10, catchUp: 31, made }, 20)).toBe(13);
  expect(findDueSlot({ firstSlot: 10, catchUp: 3, made }, 400)).toBe(398);
  expect(findDueSlot({ firstSlot: 15, catchUp: 31, made }, 20)).toBe(15);
  expect(findDueSlot({ firstSlot: 15, catchUp: 31, made }, 14)).toBeUndefined();
  expect(findNextSlot({ firstSlot: 15, catchUp: 31, made }, 9)).toBe(15);
  expect(findNextSlot({ firstSlot: 1, catchUp: 31, made }, 9)).toBe(13);
});

test('Slots that were skipped because the clock was ahead become due when it is set back', () => {
  // Slots up to 100 in time, then three of a year later.
  const made = addAll([98, 99, 100, 463, 464, 465]);
  expect(findDueSlot({ firstSlot: 90, catchUp: 3, made }, 465)).toBeUndefined();
  expect(findDueSlot({ firstSlot: 90, catchUp: 3, made }, 101)).toBe(101);
  expect(findNextSlot({ firstSlot: 90, catchUp: 3, made }, 462)).toBe(466);
});
