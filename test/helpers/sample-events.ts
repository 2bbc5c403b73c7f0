import { existsSync, readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import type { ImportedEvent } from './export-events.ts';

const sample = process.env['TRIBUTARY_SAMPLE_EVENTS'] ?? '';
export const hasSample = existsSync(sample);
if (!hasSample) process.stderr.write('TRIBUTARY_SAMPLE_EVENTS names no file; exports are not tested on real events\n');

/** The real events, as imported for a web app. */
export function readSample(): ImportedEvent[] {
  const bytes = readFileSync(sample);
  const text = (sample.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString('utf8');
  return text
    .trim()
    .split('\n')
    .map((line, index) => {
      const { eventTimestamp, ...fields } = JSON.parse(line) as { eventTimestamp: number };
      return {
        eventId: `real-${String(index).padStart(7, '0')}`,
        kind: 'custom_event' as const,
        idApp: 13,
        eventTimestamp,
        available: eventTimestamp + 1,
        fields,
      };
    });
}
