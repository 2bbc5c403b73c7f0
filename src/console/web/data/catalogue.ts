import { callApi, type AnswerOf } from '../frame/client.ts';

/** What custom events an app has; without a version there is no catalogue yet. */
export type Catalogue = AnswerOf<'/api/catalogue/v1/get.json'>;
export type CatalogueEvent = Catalogue['customEvents'][number];
/** A parameter of a custom event, as far as its events were looked at. */
export type CatalogueParameter = NonNullable<CatalogueEvent['parameters']>[number];

/** Loads the custom events of an app, or one of them with its parameters. */
export function loadCatalogue(idApp: string, signal: AbortSignal, customEventName?: string): Promise<Catalogue> {
  const given = { idApp, days: '0', ...(customEventName === undefined ? {} : { customEventName }) };
  return callApi('/api/catalogue/v1/get.json', { given, signal });
}
