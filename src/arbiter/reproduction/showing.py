from arbiter.reproduction.stages import Workshop
def write_all(workshop: Workshop) -> None:
    pass
