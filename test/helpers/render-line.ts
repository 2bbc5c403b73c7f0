import { renderEvent, renderLines, type LineContext } from '../../src/datasets/event-line.ts';
import type { Platform } from '../../src/datasets/field-schema.ts';
import type { InputFields } from '../../src/datasets/schema-registry.ts';

/** Sender of the events of a request: app, method, time and platform. */
export interface SenderContext extends LineContext {
  readonly platform: Platform;
}

/** Renders one validated event of a request as its line of NDJSON. */
export function renderLine(context: SenderContext, fields: InputFields, index: number): string {
  const { kind, platform, ids } = context;
  return renderLines({ ...context, ids: () => ids(index) }, [renderEvent(kind, platform, fields)]);
}
