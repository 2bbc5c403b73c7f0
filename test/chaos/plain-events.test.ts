import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import { getMethod } from '../../src/datasets/dataset.ts';
import { renderEvent } from '../../src/datasets/event-line.ts';
import { renderEventsFast } from '../../src/datasets/fast-event-renderer.ts';
import { parseEventJson, validateEvent, type InputFields } from '../../src/datasets/schema-registry.ts';
import { chaosFigure, chaosSeed } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { generatedBody, type GeneratedBody } from '../helpers/import-bodies.ts';

const bodies = chaosFigure('TRIBUTARY_TEST_PLAIN_BODIES', { short: 4000, long: 1_000_000 });
const seed = chaosSeed();

/** Returns the events of a body, parsed each time because validation changes them; none if it is not JSON. */
function parseEvents({ method, bytes }: GeneratedBody): unknown[] {
  const { kind, batch } = getMethod(method);
  try {
    const value = parseEventJson(kind, bytes.toString());
    return batch && Array.isArray(value) ? (value as unknown[]) : [value];
  } catch {
    return [];
  }
}

/** Returns the sorted members of a line as text: two notations of one value differ. */
const namesAndTexts = (members: string): string[] =>
  members === ''
    ? []
    : Object.entries(JSON.parse(`{${members.slice(1)}}`) as object)
        .map(([name, value]) => `${name} ${JSON.stringify(value)}`)
        .toSorted();

it('The schema accepts each event that the quick check accepts, as the same line', { timeout: 3_600_000 }, () => {
  const figures = { bodies: 0, events: 0, plain: 0, valid: 0, wronglyTaken: 0 };
  fc.assert(
    fc.property(generatedBody, (body) => {
      const { kind } = getMethod(body.method);
      const judged = parseEvents(body);
      figures.bodies += 1;
      for (const [index, value] of parseEvents(body).entries()) {
        const plain = renderEventsFast(kind, body.platform, [value]);
        figures.events += 1;
        const other = judged[index];
        const isObject = typeof other === 'object' && other !== null && !Array.isArray(other);
        const isValid = isObject && validateEvent(kind, other as InputFields) === undefined;
        if (isValid) figures.valid += 1;
        if (plain === undefined) continue;
        figures.plain += 1;
        if (!isValid) figures.wronglyTaken += 1;
        expect(isValid).toBe(true);
        const [event] = plain.events;
        const expected = renderEvent(kind, body.platform, other as InputFields);
        expect(event?.time).toBe(expected.time);
        expect(namesAndTexts(event?.members ?? '')).toEqual(namesAndTexts(expected.members));
      }
    }),
    { seed, numRuns: bodies },
  );
  recordFinding({
    promise: 'P12',
    what: 'generated bodies: the quick check next to the schema',
    wanted: `${bodies.toLocaleString('en-US')} bodies: nothing is taken that the schema refuses, every line is the same`,
    figures,
    reached: figures.wronglyTaken === 0 && figures.plain > 0,
    seed,
    again: `make chaos PART=plain-events SEED=${seed}`,
  });
  // Otherwise the comparison would show nothing.
  expect(figures.plain / figures.valid).toBeGreaterThan(0.1);
});
