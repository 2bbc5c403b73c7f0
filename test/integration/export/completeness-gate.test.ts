import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { createCompletenessGate } from '../../../src/export/schedules/slot-clock.ts';
import { readWatermarkMs } from '../../../src/lake/watermark.ts';
import { createClock } from '../../../src/runtime/clock.ts';
import type { Schedule } from '../../../src/schedules/schedules.ts';
import { testFolder } from '../../helpers/folder.ts';
import { formatRequest } from '../../helpers/format-request.ts';
import { eventLine, startTestCompact } from '../../helpers/lake.ts';
import { createMemoryStream } from '../../helpers/memory-stream.ts';
import { waitFor } from '../../helpers/wait.ts';

const daySeconds = 86_400;
const machineClock = createClock(0);

test.each([
  ['ahead of', 3 * daySeconds],
  ['behind', -3 * daySeconds],
])(
  'A service whose clock is %s that of its broker knows that the lake is complete for a slot',
  async (_how, offset) => {
    const folder = testFolder();
    const clock = createClock(offset);
    const stream = createMemoryStream(machineClock);
    const compactor = await startTestCompact(folder, stream, { clock });
    onTestFinished(() => compactor.stop());
    stream.publish([eventLine({ kind: 'custom_event', custom_event_name: 'e', custom_user_id: 'u' })]);
    const lakeDir = path.join(folder, 'lake');
    const findReadiness = createCompletenessGate({
      lakeDir,
      clock,
      slotClock: { timeOf: async () => clock.nowMs(), newest: async () => 0 },
    });
    const { rule }: Pick<Schedule, 'rule'> = { rule: { every: 'hour', at: ':00', timezone: 'UTC' } };
    const readinessAt = (beforeSeconds: number) =>
      findReadiness({ rule } as Schedule, 1, { ...formatRequest(), eventTime: { fromSeconds: 0, beforeSeconds } });
    const nowSeconds = Math.floor(clock.nowMs() / 1000);
    await waitFor(
      'it is known how far it is',
      async () => (await readWatermarkMs(lakeDir, machineClock)) !== undefined,
    );
    await waitFor('it is complete', async () => (await readinessAt(nowSeconds)) === 'complete');
    expect(await readinessAt(nowSeconds + 3600)).toBe('waits');
  },
);
